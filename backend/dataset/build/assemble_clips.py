"""From the results of the stages to the rows of a dataset: recordings with problems, clips with verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from backend.audio.span import Span
from backend.dataset.build.context import BuildContext
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.encoded_clip import ClipVoice
from backend.dataset.clips.stage_results import CutClip, DecodedRecording
from backend.dataset.clips.views import ClipDetails, ClipEdit, ClipRow, RecordingDetails, RecordingView
from backend.dataset.sources.find import FoundRecording, SourceRecording
from backend.dataset.stages.cut import describe_clip
from backend.dataset.stages.tokenize import lookup_tokenized
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.workspace import DatasetWorkspace, hash_inputs
from backend.dataset.verdicts.calibration import discrepancy_of
from backend.dataset.verdicts.change_clip import ClipSelection
from backend.dataset.verdicts.decide_verdicts import Candidate, decide_verdicts
from backend.store.errors import ArtifactError
from backend.transcription.transcript import Transcript

_VOICES_REMEMBERED = 8192
"""A few kilobytes each; without them an edit that moves the speaker's centre reads a file of every clip."""

_CLIP_KEY_VERSION = 5
"""Not that of the stage: the user's edits are found by a clip's key, also after the stage has changed."""

_NOT_DONE = "It was not finished. Build again to resume."


def assemble(
    recordings: Sequence[FoundRecording], context: BuildContext, table: DatasetTable, problems: Mapping[str, str]
) -> list[ClipRow]:
    """Store the recordings and reviewed clips of a finished build; `problems` are by recording or clip."""
    name = context.job.name
    edits = table.edits(name)
    views: list[RecordingView] = []
    clips: dict[str, ClipDetails] = {}
    for found in recordings:
        if found.source is None:
            views.append(_unusable(found.name, None, found.problem))
            continue
        view, own = _recording(found.source, context, problems)
        views.append(view)
        clips.update(_with_moved_cuts(own, edits, view.details.heard, context))
    table.save_recordings(name, views)
    return review_clips(context.job, table, clips, context.workspace, context.encoder_identity)


def review_clips(
    job: BuildJob,
    table: DatasetTable,
    clips: Mapping[str, ClipDetails],
    workspace: DatasetWorkspace,
    encoder_identity: str,
) -> list[ClipRow]:
    """Review the clips of a dataset with all its edits, and store them; returns what was stored."""
    edits = table.edits(job.name)
    candidates = [
        _candidate(key, details, edits.get(key, ClipEdit()), workspace, encoder_identity)
        for key, details in clips.items()
    ]
    rows = decide_verdicts(candidates, edits, table.chosen_reference(job.name), job.gates)
    table.save_clips(job.name, rows)
    return rows


def review_change(
    job: BuildJob,
    table: DatasetTable,
    rows: Sequence[ClipRow],
    changed: tuple[str, ClipDetails],
    workspace: DatasetWorkspace,
    encoder_identity: str,
) -> None:
    """The same after one clip was changed or edited: its key and details; `rows` are the clips as stored."""
    edits = table.edits(job.name)
    key, details = changed
    reviewed = ClipSelection(rows, job.gates, lambda tensors_id: _voice(workspace.home, tensors_id))
    try:
        reviewed.change(_candidate(key, details, edits.get(key, ClipEdit()), workspace, encoder_identity))
    except ArtifactError:
        # Of another clip; a review of all clips leaves it without an embedding.
        review_clips(job, table, {row.key: row.details for row in rows} | {key: details}, workspace, encoder_identity)
        return
    table.update_clips(job.name, rows, reviewed.rows(edits, table.chosen_reference(job.name)))


def _candidate(
    key: str, details: ClipDetails, edit: ClipEdit, workspace: DatasetWorkspace, encoder_identity: str
) -> Candidate:
    tensors_id, voice = _tokenized(details, workspace, encoder_identity)
    text = details.current.text or "" if edit.text is None else edit.text
    source = details.current.text_source if edit.text is None else "person"
    now = details.model_copy(
        update={
            "text": text,
            "text_source": source,
            "discrepancy": None if source == "whisper" else discrepancy_of(details.current, text),
            "tensors_id": tensors_id,
            "failure": "" if tensors_id else details.failure,
            "style": details.given_style if edit.style is None else edit.style,
        }
    )
    return Candidate(key=key, audio=workspace.wav(details.current.clip_id), details=now, voice=voice)


def with_cut(workspace: DatasetWorkspace, details: ClipDetails, heard: Transcript | None, span: Span) -> ClipDetails:
    """A clip with another cut; a text from the transcript becomes the words within the new cut.

    Raises EncoreError when the recording is gone or the disk is full.
    """
    text, source = details.original.text, details.original.text_source
    if heard is not None and source == "whisper":
        text = heard.excerpt(span).text
    current = describe_clip(workspace, details.recording_audio_id, span, heard, text, source)
    return details.model_copy(update={"current": current, "tensors_id": None})


def clip_key(recording_id: str, clip: CutClip) -> str:
    """Name of a clip, which no edit changes: made of where the build cut it."""
    return hash_inputs("cut", _CLIP_KEY_VERSION, recording_id, clip.span.start_seconds, clip.span.end_seconds)[:12]


def _recording(
    source: SourceRecording, context: BuildContext, problems: Mapping[str, str]
) -> tuple[RecordingView, dict[str, ClipDetails]]:
    decoded = context.lookup_decoded(source)
    if decoded is None or decoded.problem:
        problem = problems.get(source.recording_id) or (decoded.problem if decoded else _NOT_DONE)
        return _unusable(source.name, source.recording_id, problem), {}
    cut = context.lookup_cut(source)
    if cut is None:
        return _unusable(source.name, source.recording_id, problems.get(source.recording_id, _NOT_DONE), decoded), {}
    view = RecordingView(
        name=source.name,
        recording_id=source.recording_id,
        seconds=decoded.seconds,
        num_clips=len(cut.clips),
        problem=cut.problem,
        details=RecordingDetails(
            audio_id=decoded.audio_id,
            made_by_encore=decoded.made_by_encore,
            heard=context.lookup_transcript(decoded),
            lost=cut.lost,
        ),
    )
    return view, {
        clip_key(source.recording_id, clip): ClipDetails(
            recording_name=source.name,
            recording_audio_id=decoded.audio_id,
            original=clip,
            current=clip,
            text=clip.text or "",
            text_source=clip.text_source,
            given_style=source.given_style,
            failure=problems.get(clip.clip_id, ""),
        )
        for clip in cut.clips
    }


def _with_moved_cuts(
    clips: dict[str, ClipDetails], edits: Mapping[str, ClipEdit], heard: Transcript | None, context: BuildContext
) -> dict[str, ClipDetails]:
    """Cut again where the user moved a cut after an earlier build."""
    moved = dict(clips)
    for key, details in clips.items():
        edit = edits.get(key)
        if edit is not None and edit.span is not None:
            moved[key] = with_cut(context.workspace, details, heard, edit.span)
    return moved


def _tokenized(
    details: ClipDetails, workspace: DatasetWorkspace, encoder_identity: str
) -> tuple[str | None, ClipVoice | None]:
    """Where the codes of a clip are and what tells its speaker, if it was tokenized."""
    if details.tensors_id is not None:
        with suppress(ArtifactError):
            return details.tensors_id, _voice(workspace.home, details.tensors_id)
    tokenized = lookup_tokenized(workspace, details.current.clip_id, encoder_identity)
    if tokenized is None:
        return None, None
    return tokenized.tensors_id, _voice(workspace.home, tokenized.tensors_id)


@lru_cache(maxsize=_VOICES_REMEMBERED)
def _voice(home: Path, tensors_id: str) -> ClipVoice:
    """Artefacts are named by their content, so what was read once stays valid."""
    return DatasetWorkspace(home).read_encoded(tensors_id).voice


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
