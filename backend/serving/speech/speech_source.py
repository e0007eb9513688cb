"""What an `AudioStream` is made of: a plan, sound, and how far it has come; from this process or from another one."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backend.serving.engine.frame_pace import FramePace
from backend.serving.engine.take_timeline import TakeTimeline
from training.model.generation.finish_reason import FinishReason
from training.model.sampling_settings import Sampling


@dataclass(frozen=True, kw_only=True)
class SpeechPlan:
    """What is known of a speech before its first sound.

    Attributes:
        text: all that is to be said.
        segments: the same as it is split.
        language: of the text.
        is_in_context: whether the reference's words are known.
        reference: what the recording says, and how many seconds it takes; None where only its sound is known.
        sampling: None where the checkpoint's own is used.
        sample_rate: in Hz.
        payload: the number that the mark in the sound carries; None where it carries none.
        is_marked: whether what is heard says that it was made.
    """

    text: str
    segments: tuple[str, ...]
    language: str
    is_in_context: bool
    reference: tuple[str, float] | None
    sampling: Sampling | None
    sample_rate: int
    payload: int | None
    is_marked: bool


@dataclass(kw_only=True)
class SpeechState:
    """How far a speech has come.

    Attributes:
        seeds: of each segment that was played.
        finish_reasons: the same.
        timelines: when what happened to each of them, as it was spoken at last.
        lengths: the same, in samples; the end of one overlaps the beginning of the next.
        starts: where each segment that is played begins, in samples; one more than of those above while it is played.
        num_stitched: samples that left the engine, with crossfades.
        num_spoken: of these, what was passed on to be played, before it is played faster or slower.
        seconds_to_first_audio: from the request to the first decoded frame; 0 before it.
        pace: of the engine, when the last chunk left it; None where nothing was measured yet.
    """

    seeds: list[int] = field(default_factory=list)
    finish_reasons: list[FinishReason] = field(default_factory=list)
    timelines: list[TakeTimeline] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    num_stitched: int = 0
    num_spoken: int = 0
    seconds_to_first_audio: float = 0.0
    pace: FramePace | None = None

    def since(self, before: SpeechState) -> SpeechState:
        """What has been added to a state before: its lists hold only what is new."""
        return replace(
            self,
            seeds=self.seeds[len(before.seeds) :],
            finish_reasons=self.finish_reasons[len(before.finish_reasons) :],
            timelines=self.timelines[len(before.timelines) :],
            lengths=self.lengths[len(before.lengths) :],
            starts=self.starts[len(before.starts) :],
        )

    def add(self, new: SpeechState) -> None:
        """Take over what `since` returned elsewhere."""
        self.seeds += new.seeds
        self.finish_reasons += new.finish_reasons
        self.timelines += new.timelines
        self.lengths += new.lengths
        self.starts += new.starts
        self.num_stitched, self.num_spoken = new.num_stitched, new.num_spoken
        self.seconds_to_first_audio, self.pace = new.seconds_to_first_audio, new.pace


class SpeechSource(Protocol):
    """Where the sound of a stream is made. Nothing in it refers to the stream, which may be dropped without a word."""

    @property
    def started(self) -> float:
        """When it was asked for, on the clock of `time.perf_counter`."""
        ...

    @property
    def plan(self) -> SpeechPlan:
        """What will be spoken."""
        ...

    @property
    def state(self) -> SpeechState:
        """How far it has come; changes while `chunks` is iterated, in the same thread."""
        ...

    def chunks(self) -> Generator[NDArray[np.float32]]:
        """The sound (samples,) as it is made; chunks may be empty. Called once. Raises EncoreError."""
        ...

    def cancel(self) -> None:
        """End it, from any thread: iteration ends soon after."""
        ...

    def close(self) -> None:
        """Free what makes it, at once. May be called twice."""
        ...
