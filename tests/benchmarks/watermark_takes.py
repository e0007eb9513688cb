"""The takes of the watermark's benchmark: planned by number, spoken without a mark, and kept as files.

What is there already is not spoken again, so that thousands can be made in several goes. The benchmark marks them
itself, and so has every take with and without the mark.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from backend.errors import EncoreError
from backend.serving.deploy.factory import build_synthesizer
from backend.serving.requests import Reference, SynthesisRequest
from backend.serving.settings import EngineSettings
from backend.serving.synthesizer import Synthesizer
from backend.store.home import Home
from backend.voices.registry import Voices
from backend.voices.samples import list_samples
from backend.voices.voice import Voice
from backend.watermark.mark import Mark
from backend.watermark.marker import Marker
from tests.benchmarks.voice import SENTENCES

RATE = 24_000
KEY = bytes(range(32))
_NUM_SLOTS = 8
_BLOCK = 200

_NUM_SENTENCES = (2, 6, 2, 3, 2, 3, 2, 6, 2, 3)
_NUM_VARIED = 500
"""So many takes have those numbers of sentences in turn. Later ones have two, because speaking is what takes time."""

Sound = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PlannedTake:
    """What a take is to be; its number says it all.

    Attributes:
        number: also the payload of its mark.
        voice: who speaks.
        text: of several sentences, or of one for the judges.
        is_in_context: cloned from a recording and what it says; otherwise from the sound alone.
    """

    number: int
    voice: str
    text: str
    is_in_context: bool

    def path(self, folder: Path) -> Path:
        """Where its sound is kept."""
        return folder / f"{self.number:05}-{self.voice}.flac"


def plan_takes(voices: Sequence[str], count: int, *, is_single: bool = False, first: int = 0) -> list[PlannedTake]:
    """So many takes by these voices in turn; any first part of them has about the same mix."""
    sentences = [text for text in SENTENCES.read_text(encoding="utf-8").splitlines() if text.strip()]
    planned = []
    for number in range(first, first + count):
        turn, place = divmod(number - first, len(voices))
        varied = _NUM_SENTENCES[turn % len(_NUM_SENTENCES)] if number < _NUM_VARIED else 2
        num_sentences = 1 if is_single else varied
        texts = random.Random(number).sample(sentences, num_sentences)
        planned.append(
            PlannedTake(number=number, voice=voices[place], text=" ".join(texts), is_in_context=turn % 4 == 0)
        )
    return planned


def speakers(home: Path | None) -> dict[str, Voice | None]:
    """Names of the sample voices, and of the fine-tuned voices of a home with what is kept of them."""
    kept = () if home is None else Voices(Home(home)).list()
    tuned = {voice.name: voice for voice in kept if voice.kind == "fine-tuned"}
    return {**{sample.name: None for sample in list_samples()}, **tuned}


def make_takes(planned: Sequence[PlannedTake], folder: Path, known: dict[str, Voice | None]) -> None:
    """Speak what is not there yet, several at once."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [take for take in planned if not take.path(folder).exists()]
    if not missing:
        return
    # Takes of one checkpoint share a batch; in blocks, so that a part of them still has the same mix.
    missing.sort(key=lambda take: (take.number // _BLOCK, take.voice if known[take.voice] is not None else ""))
    unmarked = Mark(off_because="the benchmark marks the same takes itself")
    settings = EngineSettings(model="mini", num_slots=_NUM_SLOTS, mark=unmarked, max_engines=1 + len(known))
    synthesizer = build_synthesizer(settings)
    try:
        with ThreadPoolExecutor(_NUM_SLOTS) as pool:
            done = pool.map(lambda take: _make(synthesizer, take, folder, known[take.voice]), missing)
            for number, _ in enumerate(done):
                print(f"\rspoken: {number + 1} of {len(missing)}", end="", file=sys.stderr, flush=True)
    finally:
        synthesizer.close()
        print(file=sys.stderr)


def _make(synthesizer: Synthesizer, take: PlannedTake, folder: Path, kept: Voice | None) -> None:
    request = SynthesisRequest(
        voice=kept or _sample(take, folder),
        text=take.text,
        seed=take.number,
        language="english",
        is_streamed=False,
    )
    try:
        samples = np.concatenate(list(synthesizer.speak(request)))
    except EncoreError as error:
        print(f"take {take.number} was not made: {error}", file=sys.stderr)
        return
    partial = take.path(folder).with_suffix(".partial")
    soundfile.write(partial, samples, RATE, format="FLAC", subtype="PCM_16")
    partial.rename(take.path(folder))


def _sample(take: PlannedTake, folder: Path) -> Reference:
    (sample,) = (one for one in list_samples() if one.name == take.voice)
    return Reference(
        name=sample.name,
        recording=sample.reference_in(folder.parent),
        transcript=sample.reference_text if take.is_in_context else None,
    )


def made(planned: Sequence[PlannedTake], folder: Path) -> Iterator[tuple[PlannedTake, Sound]]:
    """The takes that are there, in order."""
    for take in planned:
        if take.path(folder).exists():
            yield take, read(take.path(folder))


def read(path: Path) -> Sound:
    """The sound of a take at RATE."""
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    return np.asarray(samples, dtype=np.float32)


def mark(samples: Sound, payload: int) -> Sound:
    """What the engine would have handed out."""
    marker = Marker(RATE, installation_key=KEY, payload=payload)
    return np.concatenate([marker.add(samples), marker.finish()])
