"""The checkpoint that is shipped: it loads, is small enough, speaks, clones, and writes down the sample voices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from backend.serving.engine.engine import Engine
from backend.voices.cloning import clone_voice
from backend.voices.reference import read_reference
from tests.backend.serving.conftest import UNMARKED, take_of
from tests.benchmarks.voice_judges import Recogniser, character_error
from tests.single_take import Synthesizer, Take
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.project import PROJECT_FOLDER
from training.model.speaker_verifier import SpeakerVerifier, load_verifier
from training.model.voice_model import VoiceModel
from training.pretrain.pack.pack import MAX_BYTES, size_of

pytestmark = pytest.mark.skipif(not EMBEDDED_FOLDER.is_dir(), reason="assets/mini is not part of this copy")

VOICES = PROJECT_FOLDER / "assets" / "voices"
SENTENCES = ("My brother found the key under the chair.", "We will meet at the station on Monday.")
# Far above what the benchmark measures: this is to notice a broken checkpoint, not a slightly worse one.
MAX_SPOKEN_ERROR = 0.5
MIN_MARGIN = 0.02
# A talker of fewer steps speaks in the right voice, and says what it likes.
STEPS_TO_BE_UNDERSTOOD = 2_500


def is_understood() -> bool:
    path = EMBEDDED_FOLDER / "training" / "about.json"
    if not path.is_file():
        return False
    talker = json.loads(path.read_text())["runs"]["talker"]
    return talker.get("steps_before", 0) + talker["steps_done"] >= STEPS_TO_BE_UNDERSTOOD


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    torch.set_num_threads(1)
    return Synthesizer(VoiceModel.load(EMBEDDED_FOLDER, precision="fp32", device="cpu"))


@pytest.fixture(scope="module")
def verifier() -> SpeakerVerifier:
    return load_verifier()


def sample(name: str) -> NDArray[np.float32]:
    samples, _ = soundfile.read(VOICES / f"{name}.flac", dtype="float32")
    return np.asarray(samples, np.float32)


def voice_of(synthesizer: Synthesizer, name: str, folder: Path) -> VoicePrompt:
    """A clone from the first eight seconds of a sample recording."""
    path = folder / f"{name}.wav"
    soundfile.write(path, sample(name)[: 8 * 16_000], 16_000)
    return clone_voice(synthesizer.model, read_reference(path))


@pytest.fixture(scope="module")
def takes(synthesizer: Synthesizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Take]]:
    """The same sentences by clones of two sample voices."""
    folder = tmp_path_factory.mktemp("references")
    return {
        name: [
            synthesizer.speak(TakeRequest(text=text, voice=voice_of(synthesizer, name, folder), seed=3))
            for text in SENTENCES
        ]
        for name in ("iris", "owen")
    }


def test_it_is_whole_and_small_enough():
    model = VoiceModel.load(EMBEDDED_FOLDER, precision="fp32", device="cpu")
    assert model.speaker_encoder is not None
    assert size_of(EMBEDDED_FOLDER) <= MAX_BYTES


@pytest.mark.skipif(not is_understood(), reason="the packed talker has not been trained long enough to be understood")
def test_it_says_what_it_was_asked_to(takes: dict[str, list[Take]]):
    recogniser = Recogniser()
    spoken = [recogniser.transcribe(take.waveform) for one in takes.values() for take in one]
    assert character_error([*SENTENCES, *SENTENCES], spoken) <= MAX_SPOKEN_ERROR, spoken


def test_clones_of_two_people_sound_like_them(takes: dict[str, list[Take]], verifier: SpeakerVerifier):
    people = {name: verifier.embed(sample(name)) for name in takes}
    for name, others in (("iris", "owen"), ("owen", "iris")):
        heard = verifier.embed(np.concatenate([take.waveform for take in takes[name]]))
        assert float(heard @ people[name]) > float(heard @ people[others]) + MIN_MARGIN


def test_takes_end_in_silence(synthesizer: Synthesizer, tmp_path: Path):
    """Its talker ends what it says with a frame that is a click."""
    request = TakeRequest(text=SENTENCES[0], voice=voice_of(synthesizer, "owen", tmp_path), seed=1)
    with Engine(synthesizer.model, num_slots=1, consume=False, mark=UNMARKED) as engine:
        take = take_of(engine.submit(request))
    assert take.finish_reason is FinishReason.EOS
    last = take.waveform[-(len(take.waveform) // len(take.codes)) :]
    assert np.abs(last).max() < 0.02
    assert not last[len(last) // 2 :].any()


def test_the_same_seed_is_the_same_take(synthesizer: Synthesizer, takes: dict[str, list[Take]], tmp_path: Path):
    voice = voice_of(synthesizer, "iris", tmp_path)
    again = synthesizer.speak(TakeRequest(text=SENTENCES[0], voice=voice, seed=3))
    other = synthesizer.speak(TakeRequest(text=SENTENCES[0], voice=voice, seed=4))
    assert torch.equal(again.codes, takes["iris"][0].codes)
    assert not (len(other.codes) == len(again.codes) and torch.equal(other.codes, again.codes))
