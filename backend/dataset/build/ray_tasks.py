"""What runs in Ray's tasks: a stage, row by row. A row that fails carries its reason on and does not stop others."""

from __future__ import annotations

import errno
import json
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import pyarrow as pa

from backend.audio.span import Span
from backend.dataset.build.context import BuildContext
from backend.dataset.build.progress import StageCounts
from backend.dataset.clips.stage_counts import Outcome, Stage
from backend.dataset.clips.stage_results import CutRecording, DecodedRecording
from backend.dataset.sources.find import SourceRecording
from backend.errors import EncoreError
from training.errors import StorageError

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Row = dict[str, Any]  # Any: columns of text and numbers

FAILED: Outcome = "failed"
DISK_FULL = "The disk is full. Free some space and build again to resume; what was finished is kept."

# One column of JSON: with columns of their own, blocks without any text would differ in type from those with one.
SOURCE_SCHEMA = pa.schema([("recording", pa.string())])
PIECE_SCHEMA = pa.schema(
    [
        ("recording_id", pa.string()),
        ("audio_id", pa.string()),
        ("start_seconds", pa.float64()),
        ("end_seconds", pa.float64()),
        ("problem", pa.string()),
    ]
)
CLIP_SCHEMA = pa.schema(
    [("recording_id", pa.string()), ("clip_id", pa.string()), ("seconds", pa.float64()), ("problem", pa.string())]
)


def source_row(source: SourceRecording) -> Row:
    """A recording as the row that `decode` and `cut` take."""
    return {"recording": json.dumps(asdict(source))}


def decode(table: pa.Table, context: BuildContext) -> Iterator[pa.Table]:
    """Decode recordings; returns the pieces to transcribe."""
    for source in _sources(table):
        if context.counts.begin("decode"):
            yield pa.Table.from_pylist(_decode_one(source, context), schema=PIECE_SCHEMA)
    # An empty table has the columns even if there are no rows.
    yield PIECE_SCHEMA.empty_table()


def cut(table: pa.Table, context: BuildContext) -> Iterator[pa.Table]:
    """Cut recordings; returns their clips."""
    for source in _sources(table):
        if context.counts.begin("cut"):
            yield pa.Table.from_pylist(_cut_one(source, context), schema=CLIP_SCHEMA)
    yield CLIP_SCHEMA.empty_table()


def _sources(table: pa.Table) -> list[SourceRecording]:
    return [SourceRecording(**json.loads(row["recording"])) for row in table.to_pylist()]


def _decode_one(source: SourceRecording, context: BuildContext) -> list[Row]:
    counts, recording_id = context.counts, source.recording_id
    found, problem = attempt(lambda: context.decode(source), "decode", counts)
    decoded, outcome = found or (DecodedRecording(problem=problem), FAILED)
    pieces = context.pieces(decoded)
    counts.add("decode", recording_id, outcome, decoded.seconds)
    counts.announce("transcribe", recording_id, frozenset(piece_name(decoded.audio_id, span) for span in pieces))
    if decoded.problem:
        return [_piece_row(recording_id, problem=decoded.problem)]
    return [_piece_row(recording_id, decoded.audio_id, span) for span in pieces]


def _cut_one(source: SourceRecording, context: BuildContext) -> list[Row]:
    counts, recording_id = context.counts, source.recording_id
    decoded, problem = attempt(lambda: context.lookup_to_cut(source), "cut", counts)
    if problem:
        return [{"recording_id": recording_id, "clip_id": "", "seconds": 0.0, "problem": problem}]
    if decoded is None:
        return []  # its reason is known from the first pass
    found, problem = attempt(lambda: context.cut(source, decoded), "cut", counts)
    result, outcome = found or (CutRecording(clips=()), FAILED)
    counts.add("cut", recording_id, outcome, decoded.seconds)
    counts.announce("tokenize", recording_id, frozenset(clip.clip_id for clip in result.clips))
    if problem:
        return [{"recording_id": recording_id, "clip_id": "", "seconds": 0.0, "problem": problem}]
    return [
        {"recording_id": recording_id, "clip_id": clip.clip_id, "seconds": clip.seconds, "problem": ""}
        for clip in result.clips
    ]


def piece_name(audio_id: str, span: Span) -> str:
    """The name under which a piece is counted."""
    return f"{audio_id}/{span.start_seconds:.3f}"


def _piece_row(recording_id: str, audio_id: str = "", span: Span | None = None, problem: str = "") -> Row:
    span = span or Span(start_seconds=0.0, end_seconds=0.0)
    return {"recording_id": recording_id, "audio_id": audio_id, "problem": problem, **asdict(span)}


def attempt(work: Callable[[], Result], stage: Stage, counts: StageCounts) -> tuple[Result | None, str]:
    """Do the work of a row: its result and no problem, or None and what went wrong.

    A full disk stops the build, and so does a storage that cannot be used.
    """
    try:
        return work(), ""
    except Exception as error:
        # The edge of a row: one bad file must not take the others with it.
        if _is_disk_full(error):
            counts.cancel()
            return None, DISK_FULL
        if isinstance(error, StorageError):
            # Ray would lose the sentence of what is raised here.
            counts.stop_for(f"{error} This was on the machine {socket.gethostname()}.")
        if isinstance(error, EncoreError):
            return None, str(error)
        _logger.exception("stage %s failed", stage)
        fault = f"A fault in Encore ({type(error).__name__}) kept it from being processed. The log has the details."
        return None, fault


def _is_disk_full(error: BaseException | None) -> bool:
    """Whether an error was caused by a full disk, however it was wrapped."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False
