"""What is shown of a dataset: plain facts, to be drawn by the page and printed by the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from backend.audio.span import Span
from backend.dataset.clips.gates import GateResult, Verdict
from backend.dataset.clips.stage_counts import Stage
from backend.dataset.clips.stage_results import CutClip, Lost, TextSource
from backend.transcription.transcript import Transcript


class BuildState(StrEnum):
    """How far a build has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class _View(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class StageProgress(_View):
    """One stage of a build.

    Attributes:
        num_done: rows finished, those found from earlier builds and failed ones included.
        num_total: None as long as an earlier stage still adds rows.
        audio_seconds: of the rows worked on in this build.
        seconds_left: None while the rate is unknown.
    """

    stage: Stage
    num_done: int = 0
    num_reused: int = 0
    num_failed: int = 0
    num_total: int | None = None
    audio_seconds: float = 0.0
    seconds_left: float | None = None


class BuildProgress(_View):
    """A running build, or how the last one ended; `notice` is worth knowing although nothing is wrong."""

    name: str
    state: BuildState
    problem: str
    notice: str = ""
    stages: tuple[StageProgress, ...]
    process_id: int | None
    started_at: float
    heartbeat_at: float
    finished_at: float | None

    @property
    def is_running(self) -> bool:
        """Whether the build has not ended."""
        return self.state is BuildState.RUNNING

    @property
    def num_done(self) -> int:
        """Items of all stages that are finished."""
        return sum(stage.num_done for stage in self.stages)

    @property
    def num_total(self) -> int:
        """Items of all stages, as far as they are known."""
        return sum(stage.num_total or 0 for stage in self.stages)

    def stage(self, name: Stage) -> StageProgress:
        """One stage by name."""
        return next((stage for stage in self.stages if stage.stage == name), StageProgress(stage=name))


class RecordingDetails(_View):
    """What was found in a recording apart from its clips; `heard` is None without a transcriber."""

    audio_id: str = ""
    made_by_encore: bool = False
    heard: Transcript | None = None
    lost: tuple[Lost, ...] = ()


class RecordingView(_View):
    """A file as it was given, and what became of it."""

    name: str
    recording_id: str | None
    seconds: float | None
    num_clips: int
    problem: str
    details: RecordingDetails


class ClipDetails(_View):
    """Everything about a clip that the database keeps in one column.

    Attributes:
        original: as the build cut it; `current` is as the user moved it, or the same.
        text: the user's, or that of `current`.
        gates: every gate's answer, including those that accepted the clip.
        discrepancy: between the text and what was heard; None where nothing was, or where it is the text.
        failure: why it could not be tokenized; empty in nearly all cases.
        distance: of the speaker embedding to the set's centre; None before tokenizing.
        given_style: how it is said, as it came with the recording; empty if it did not.
        style: the user's, or that.
    """

    recording_name: str
    recording_audio_id: str
    original: CutClip
    current: CutClip
    text: str
    text_source: TextSource
    discrepancy: float | None = None
    gates: tuple[GateResult, ...] = ()
    own_verdict: Verdict = Verdict.ACCEPTED
    person_verdict: Verdict | None = None
    tensors_id: str | None = None
    failure: str = ""
    distance: float | None = None
    given_style: str = ""
    style: str = ""

    @property
    def is_tokenized(self) -> bool:
        """Whether codes and embedding exist; false after the cut was moved, until the rows are rebuilt."""
        return self.tensors_id is not None


@dataclass(frozen=True, kw_only=True)
class ClipRow:
    """One clip with its verdict, as it is stored and as it is shown.

    Attributes:
        key: names the clip in all commands; stays when its cut is moved.
        clip_id: hash of its audio; used by `DatasetCard.reference_clip_id` and the rows.
        verdict: the user's if there is one, else that of the gates.
        audio: WAV to play.
    """

    key: str
    clip_id: str
    seconds: float
    verdict: Verdict
    held_out: bool
    is_reference: bool
    audio: Path
    details: ClipDetails

    @property
    def text(self) -> str:
        """What is said."""
        return self.details.text

    @property
    def style(self) -> str:
        """How it is said, in a word of the user's; empty where nothing was said about it."""
        return self.details.style

    @property
    def reasons(self) -> tuple[str, ...]:
        """A sentence for each gate that warned or rejected, the most severe first."""
        found = sorted(self.details.gates, key=lambda result: -result.verdict.severity)
        return tuple(result.sentence for result in found if result.sentence)

    @property
    def is_usable(self) -> bool:
        """Whether it is trained on or evaluated with: not left out, with text and codes."""
        return not self.verdict.is_left_out and bool(self.text) and self.details.is_tokenized


@dataclass(frozen=True, kw_only=True)
class ClipEdit:
    """What the user decided about a clip; None leaves it to the build, and an empty style is none."""

    text: str | None = None
    verdict: Verdict | None = None
    span: Span | None = None
    style: str | None = None


class DatasetView(_View):
    """A dataset with all its clips.

    Attributes:
        rows_are_current: whether the training files reflect all edits; otherwise rebuild the rows.
        folder: what a fine-tune reads; exists once a build has finished.
    """

    name: str
    model: str
    language: str
    state: BuildState
    problem: str
    notice: str = ""
    folder: Path
    digest: str | None
    rows_are_current: bool
    recordings: tuple[RecordingView, ...]
    clips: tuple[ClipRow, ...]

    def minutes(self, verdict: Verdict | None = None) -> float:
        """Length of all clips, or of those with a verdict."""
        return sum(clip.seconds for clip in self.clips if verdict is None or clip.verdict is verdict) / 60

    def count(self, verdict: Verdict) -> int:
        """How many clips have a verdict."""
        return sum(clip.verdict is verdict for clip in self.clips)

    @property
    def transcribers(self) -> tuple[str, ...]:
        """Who listened to its clips."""
        return transcribers_of(self.clips)

    @property
    def styles(self) -> dict[str, int]:
        """How many clips have each style, by its name in order; those without one under an empty name, if there are."""
        return dict(sorted(Counter(clip.style for clip in self.clips).items()))

    @property
    def reference(self) -> ClipRow | None:
        """The reference clip."""
        return next((clip for clip in self.clips if clip.is_reference), None)


def transcribers_of(clips: Iterable[ClipRow]) -> tuple[str, ...]:
    """Who listened to these clips; one after the other where a build came after an update."""
    return tuple(sorted({clip.details.current.transcriber for clip in clips} - {""}))


class TranscriptChange(_View):
    """A clip whose transcript differs from its text."""

    key: str
    before: str
    after: str
    confidence: float
    transcriber: str = ""
