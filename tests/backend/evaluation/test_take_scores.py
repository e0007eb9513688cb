"""One take is scored alike for checkpoints and comparisons, by models that fit the model that is loaded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backend.evaluation.take_scores import Scorers, TakeMeasuring, score_take
from backend.transcription.pocketsphinx_transcriber import POCKETSPHINX, PocketsphinxTranscriber
from backend.transcription.transcript import Transcript
from tests.golden import GOLDEN_CHECKPOINT
from training.model.speaker_verifier import load_verifier
from training.model.voice_model import VoiceModel


def test_without_a_whisper_pocketsphinx_is_asked_for_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measuring = TakeMeasuring()
    (listener,) = measuring.transcribers()
    assert listener.name == POCKETSPHINX
    assert measuring.transcribers()[0] is listener


def test_a_language_that_the_transcriber_does_not_know_is_not_scored():
    own = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")
    scorers = Scorers(own=own, transcribers=(PocketsphinxTranscriber(),))
    scores = score_take(scorers, tone(0.5), 24_000, text="Guten Tag.", language="German", reference=None)
    assert (scores.transcript, scores.transcriber, scores.word_error) == (None, None, None)


class Parrot:
    """A transcriber that always hears the same."""

    name = "parrot"
    piece_seconds = 30.0

    def transcribe(self, samples_16k, language=None):
        assert samples_16k.dtype == np.float32
        return Transcript(text=" Hello there. ", language="en", words=())


@pytest.fixture(scope="module")
def scorers() -> Scorers:
    return Scorers(own=VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu"), transcribers=(Parrot(),))


def tone(seconds: float, level: float = 0.2) -> np.ndarray:
    return (level * np.sin(2 * np.pi * 200 * np.arange(round(24_000 * seconds)) / 24_000)).astype(np.float32)


def test_a_take_is_compared_with_its_text_and_its_reference(scorers):
    take = tone(1.0)
    scores = score_take(
        scorers, take, 24_000, text="Hello there!", language="auto", reference=scorers.embed(take, 24_000)
    )
    assert (scores.transcript, scores.word_error, scores.character_error) == ("Hello there.", 0, 0)
    assert scores.transcriber == "parrot"
    assert scores.speaker_similarity == pytest.approx(1, abs=1e-4)
    assert scores.verified_similarity is None
    assert scores.clipped_share == 0


def test_a_likeness_says_which_verifier_measured_it(scorers):
    take, verified = tone(1.0), replace(scorers, verifier=load_verifier())
    reference = verified.embed(take, 24_000)
    scores = score_take(verified, take, 24_000, text="Hello there!", language="auto", reference=reference)
    assert scores.verified_similarity == pytest.approx(1, abs=1e-4)
    assert scores.verifier == load_verifier().name
    alone = score_take(scorers, take, 24_000, text="Hello there!", language="auto", reference=reference)
    assert (alone.verified_similarity, alone.verifier) == (None, None)


def test_a_take_too_short_for_words_is_all_wrong_and_has_no_voice(scorers):
    scores = score_take(
        scorers, tone(0.05), 24_000, text="Hello.", language="auto", reference=scorers.embed(tone(1.0), 24_000)
    )
    assert (scores.transcript, scores.word_error) == ("", 1)
    assert scores.speaker_similarity is None


def test_without_a_reference_the_voice_is_not_scored(scorers):
    scores = score_take(scorers, 9 * tone(1.0), 24_000, text="Hello there", language="english", reference=None)
    assert scores.speaker_similarity is None
    assert scores.clipped_share > 0.3
