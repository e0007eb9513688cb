"""Who can be compared with whom: voices of the library, sample voices, and checkpoints of runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from backend.comparisons.errors import ComparisonError
from backend.runs.storage.records import CheckpointRecord, RunRecord
from backend.voices.samples import SampleVoice
from backend.voices.voice import CloningMode, Voice

Source = Literal["voice", "sample", "run"]

WAYS: dict[CloningMode, str] = {
    "in-context": "zero-shot, in context",
    "x-vector": "zero-shot, from the sound alone",
    "fine-tuned": "fine-tuned",
    "fine-tuned-in-context": "fine-tuned, in context",
}
"""The ways in which a voice can speak, in the words shown to users."""

_SEPARATOR = ":"


class Contender(BaseModel):
    """A voice that can speak in a comparison.

    Attributes:
        source: where it comes from: library, run or sample.
        id: of the voice or the run, or the name of the sample.
        way: how it is made to speak.
        checkpoint: of the run; empty for others.
        label: its name on the page.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Source
    id: str = Field(min_length=1, max_length=200)
    way: CloningMode
    checkpoint: str = ""
    label: str

    @property
    def key(self) -> str:
        """Identifies a side, also after it has been renamed."""
        return _SEPARATOR.join((self.source, self.id, self.way, self.checkpoint))

    @property
    def is_fine_tuned(self) -> bool:
        """Whether it has weights of its own."""
        return self.way in ("fine-tuned", "fine-tuned-in-context")

    @classmethod
    def of_voice(cls, voice: Voice, way: CloningMode) -> Self:
        """A voice of the library, spoken in one way."""
        return cls(source="voice", id=voice.id, way=way, label=f"{voice.name}: {WAYS[way]}")


def keys_of(voice: Voice, side: Contender) -> tuple[str, ...]:
    """The keys under which one way of a voice was voted on: its own, and that of the checkpoint it was made of."""
    checkpoint = voice.provenance.get("checkpoint")
    is_one_of_several = "speakers" in voice.provenance
    if side.way != "fine-tuned" or voice.run_id is None or not isinstance(checkpoint, str) or is_one_of_several:
        return (side.key,)
    trained = Contender(source="run", id=voice.run_id, way=side.way, checkpoint=checkpoint, label=side.label)
    return (side.key, trained.key)


def list_sides(
    voices: Iterable[Voice],
    runs: Iterable[tuple[RunRecord, Sequence[CheckpointRecord]]],
    samples: Iterable[SampleVoice],
) -> tuple[Contender, ...]:
    """Everything that can be compared: voices, newest first, then runs, then samples."""
    sides: list[Contender] = []
    for voice in reversed(tuple(voices)):
        sides += [Contender.of_voice(voice, way) for way in voice.modes]
    for run, checkpoints in runs:
        # Several speakers are compared as the voices that were kept of them.
        if not run.job.more_speakers:
            sides += _sides_of_run(run, checkpoints)
    for sample in samples:
        sides += [
            Contender(source="sample", id=sample.name, way=way, label=f"Sample {sample.name.title()}: {WAYS[way]}")
            for way in ("in-context", "x-vector")
        ]
    return tuple(sides)


def find_side(sides: Sequence[Contender], key: str) -> Contender:
    """The side with that key. Raises ComparisonError."""
    for side in sides:
        if side.key == key:
            return side
    raise ComparisonError("One of the voices chosen no longer exists. Choose another one.")


def _sides_of_run(run: RunRecord, checkpoints: Sequence[CheckpointRecord]) -> Iterator[Contender]:
    # As the list of runs has it: several of one day and one voice are told apart.
    name = f"{run.voice}, run of {time.strftime('%Y-%m-%d %H:%M', time.localtime(run.created_at))}"
    for point in checkpoints:
        if not point.is_base:
            yield Contender(
                source="run",
                id=run.id,
                way="fine-tuned",
                checkpoint=point.name,
                label=f"{name}: fine-tuned, step {point.step}",
            )
    if checkpoints:
        for way in ("in-context", "x-vector"):
            yield Contender(source="run", id=run.id, way=way, label=f"{name}: {WAYS[way]}")
