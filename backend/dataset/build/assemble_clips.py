"""From what the stages left to the rows of a dataset: recordings with their reasons, clips with their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.dataset.build.context import BuildContext, SourceRecording
from backend.dataset.clips.job import BuildJob
from backend.dataset.clips.records import CutClip, DecodedRecording, Span
from backend.dataset.clips.views import ClipDetails, RecordingDetails, RecordingView
from backend.dataset.review.incremental_review import ReviewedSet
from backend.dataset.review.review import Candidate, judge
from backend.dataset.sources.find import FoundRecording
from backend.dataset.stages.cut import CutStage
from backend.dataset.stages.tokenize import TokenizeStage, read_encoded
from backend.dataset.storage.dataset_table import ClipEdit, ClipRow, DatasetTable
from backend.dataset.storage.stage_cache import stage_key
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.store.errors import ArtifactError
from backend.transcription.transcript import Transcript

_EMBEDDINGS_REMEMBERED = 8192
"""A few kilobytes each; without them an edit that moves the speaker's centre opens a file of every clip."""

_NOT_DONE = "It was not finished. Build again to go on."


def assemble(
    recordings: Sequence[FoundRecording], order: BuildContext, table: DatasetTable, problems: Mapping[str, str]
) -> list[ClipRow]:
    """Store recordings and judged clips of a finished build; `problems` are by recording or clip."""
    name = order.job.name
    edits = table.edits(name)
    views: list[RecordingView] = []
    clips: dict[str, ClipDetails] = {}
    for found in recordings:
        if found.source is None:
            views.append(_unusable(found.name, None, found.problem))
            continue
        view, own = _recording(found.source, order, problems)
        views.append(view)
        clips.update(_with_moved_cuts(own, edits, view.details.heard, order))
    table.save_recordings(name, views)
    return rejudge(order.job, table, clips, DatasetWorkspace(order.home), order.tokenize_stage)


def rejudge(
    job: BuildJob,
    table: DatasetTable,
    clips: Mapping[str, ClipDetails],
    workspace: DatasetWorkspace,
    stage: TokenizeStage,
) -> list[ClipRow]:
    """Judge the clips of a dataset with all its edits, and store them; gives what was stored."""
    edits = table.edits(job.name)
    candidates = [
        _candidate(key, details, edits.get(key, ClipEdit()), workspace, stage) for key, details in clips.items()
    ]
    rows = judge(candidates, edits, table.chosen_reference(job.name), job.gates)
    table.save_clips(job.name, rows)
    return rows


def rejudge_clip(
    job: BuildJob,
    table: DatasetTable,
    rows: Sequence[ClipRow],
    changed: tuple[str, ClipDetails],
    workspace: DatasetWorkspace,
    stage: TokenizeStage,
) -> None:
    """The same after one clip was changed or edited: its key and details; `rows` are the clips as they are stored."""
    edits = table.edits(job.name)
    key, details = changed
    judged = ReviewedSet(rows, job.gates, lambda tensors_id: _embedding(workspace.home, tensors_id))
    try:
        judged.change(key, _candidate(key, details, edits.get(key, ClipEdit()), workspace, stage).details)
    except ArtifactError:
        # Of another clip; judging all of them leaves it without.
        rejudge(job, table, {row.key: row.details for row in rows} | {key: details}, workspace, stage)
        return
    table.update_clips(job.name, rows, judged.rows(edits, table.chosen_reference(job.name)))


def _candidate(
    key: str, details: ClipDetails, edit: ClipEdit, workspace: DatasetWorkspace, stage: TokenizeStage
) -> Candidate:
    tensors_id, embedding = _tokenized(details, workspace, stage)
    now = details.model_copy(
        update={
            "text": details.current.text or "" if edit.text is None else edit.text,
            "text_source": details.current.text_source if edit.text is None else "person",
            "tensors_id": tensors_id,
            "failure": "" if tensors_id else details.failure,
        }
    )
    return Candidate(key=key, details=now, embedding=embedding)


def with_cut(details: ClipDetails, heard: Transcript | None, span: Span, stage: CutStage) -> ClipDetails:
    """A clip cut elsewhere in its recording; a transcriber's text becomes the words that lie in the new cut.

    Raises EncoreError when the recording is gone or the disk is full.
    """
    text, source = details.original.text, details.original.text_source
    if heard is not None and source == "whisper":
        text = heard.excerpt(span.start_seconds, span.end_seconds).text
    current = stage.describe_clip(details.recording_audio_id, span, heard, text, source)
    return details.model_copy(update={"current": current, "tensors_id": None})


def clip_key(recording_id: str, clip: CutClip) -> str:
    """Name of a clip that stays whatever a person does to it: where the build cut it."""
    return stage_key("cut", recording_id, clip.span.start_seconds, clip.span.end_seconds)[:12]


def _recording(
    source: SourceRecording, order: BuildContext, problems: Mapping[str, str]
) -> tuple[RecordingView, dict[str, ClipDetails]]:
    decoded = order.decode_stage.find(source.recording_id, source.name)
    if decoded is None or decoded.problem:
        problem = problems.get(source.recording_id) or (decoded.problem if decoded else _NOT_DONE)
        return _unusable(source.name, source.recording_id, problem), {}
    cut = order.cut(source)
    if cut is None:
        return _unusable(source.name, source.recording_id, problems.get(source.recording_id, _NOT_DONE), decoded), {}
    view = RecordingView(
        name=source.name,
        recording_id=source.recording_id,
        seconds=decoded.seconds,
        num_clips=len(cut.clips),
        problem=cut.problem,
        details=RecordingDetails(audio_id=decoded.audio_id, heard=order.heard(decoded), lost=cut.lost),
    )
    return view, {
        clip_key(source.recording_id, clip): ClipDetails(
            recording_name=source.name,
            recording_audio_id=decoded.audio_id,
            original=clip,
            current=clip,
            text=clip.text or "",
            text_source=clip.text_source,
            failure=problems.get(clip.clip_id, ""),
        )
        for clip in cut.clips
    }


def _with_moved_cuts(
    clips: dict[str, ClipDetails], edits: Mapping[str, ClipEdit], heard: Transcript | None, order: BuildContext
) -> dict[str, ClipDetails]:
    """Cut again where a person had moved a cut in an earlier build."""
    moved = dict(clips)
    for key, details in clips.items():
        edit = edits.get(key)
        if edit is not None and edit.span is not None:
            moved[key] = with_cut(details, heard, edit.span, order.cut_stage)
    return moved


def _tokenized(
    details: ClipDetails, workspace: DatasetWorkspace, stage: TokenizeStage
) -> tuple[str | None, NDArray[np.float32] | None]:
    """Codes and speaker embedding of a clip, where it is known or found that there are any."""
    if details.tensors_id is not None:
        with suppress(ArtifactError):
            return details.tensors_id, _embedding(workspace.home, details.tensors_id)
    tokenized = stage.find(details.current.clip_id)
    if tokenized is None:
        return None, None
    return tokenized.tensors_id, _embedding(workspace.home, tokenized.tensors_id)


@lru_cache(maxsize=_EMBEDDINGS_REMEMBERED)
def _embedding(home: Path, tensors_id: str) -> NDArray[np.float32]:
    """Artefacts are named by what is in them, so what was read once is still true."""
    return read_encoded(DatasetWorkspace(home), tensors_id).speaker_embedding


def _unusable(
    name: str, recording_id: str | None, problem: str, decoded: DecodedRecording | None = None
) -> RecordingView:
    return RecordingView(
        name=name,
        recording_id=recording_id,
        seconds=decoded.seconds if decoded else None,
        num_clips=0,
        problem=problem,
        details=RecordingDetails(audio_id=decoded.audio_id if decoded else ""),
    )
