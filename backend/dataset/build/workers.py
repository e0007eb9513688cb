"""What runs in Ray's workers: a stage, row by row. A row that fails carries its reason on and stops no other."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backend.dataset.build.context import BuildContext, SourceRecording
from backend.dataset.clips.records import Span
from backend.dataset.storage.stage_cache import Stage
from backend.errors import EncoreError

if TYPE_CHECKING:
    # Ray takes a second to load, and whoever only looks at datasets has no use for it.
    from backend.dataset.build.shared_progress import Counts

_logger = logging.getLogger(__name__)

Row = dict[str, Any]  # Any: columns of text and numbers

DISK_FULL = "The disk is full. Free some space and build again to go on; what was finished is kept."

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


def decode(table: pa.Table, order: BuildContext) -> Iterator[pa.Table]:
    """Recordings to the pieces that are to be heard."""
    for source in _sources(table):
        if order.counts.begin("decode"):
            yield pa.Table.from_pylist(_decode_one(source, order), schema=PIECE_SCHEMA)
    # An empty table tells the columns where nothing else does.
    yield PIECE_SCHEMA.empty_table()


def cut(table: pa.Table, order: BuildContext) -> Iterator[pa.Table]:
    """Recordings to clips."""
    for source in _sources(table):
        if order.counts.begin("cut"):
            yield pa.Table.from_pylist(_cut_one(source, order), schema=CLIP_SCHEMA)
    yield CLIP_SCHEMA.empty_table()


def _sources(table: pa.Table) -> list[SourceRecording]:
    return [SourceRecording(**json.loads(row["recording"])) for row in table.to_pylist()]


def _decode_one(recording: SourceRecording, order: BuildContext) -> list[Row]:
    stage, counts, recording_id = order.decode_stage, order.counts, recording.recording_id
    decoded = stage.find(recording_id, recording.name)
    if decoded is not None:
        counts.add("decode", recording_id, "reused")
    else:
        problem = problem_of(lambda: stage.run(recording_id, Path(recording.path), recording.name), "decode", counts)
        decoded = stage.find(recording_id, recording.name)
        if decoded is None or decoded.problem:
            counts.add("decode", recording_id, "failed")
            counts.announce("transcribe", recording_id, frozenset())
            return [_piece_row(recording_id, problem=problem or (decoded.problem if decoded else "It is gone again."))]
        counts.add("decode", recording_id, "worked", decoded.seconds)
    pieces = order.pieces(decoded)
    counts.announce("transcribe", recording_id, frozenset(piece_name(decoded.audio_id, span) for span in pieces))
    return [_piece_row(recording_id, decoded.audio_id, span) for span in pieces]


def _cut_one(recording: SourceRecording, order: BuildContext) -> list[Row]:
    counts, recording_id = order.counts, recording.recording_id
    decoded = order.decode_stage.find(recording_id, recording.name)
    if decoded is None or decoded.problem or not order.is_heard(decoded):
        return []  # its reason is known from the first pass
    result = order.cut(recording)
    if result is not None:
        counts.add("cut", recording_id, "reused")
    else:
        heard = order.heard(decoded)
        problem = problem_of(lambda: order.cut_stage.run(decoded, heard, recording.given_text), "cut", counts)
        result = order.cut(recording)
        if result is None:
            counts.add("cut", recording_id, "failed")
            counts.announce("tokenize", recording_id, frozenset())
            return [{"recording_id": recording_id, "clip_id": "", "seconds": 0.0, "problem": problem}]
        counts.add("cut", recording_id, "worked", decoded.seconds)
    counts.announce("tokenize", recording_id, frozenset(clip.clip_id for clip in result.clips))
    return [
        {"recording_id": recording_id, "clip_id": clip.clip_id, "seconds": clip.seconds, "problem": ""}
        for clip in result.clips
    ]


def piece_name(audio_id: str, span: Span) -> str:
    """What a piece is counted as."""
    return f"{audio_id}/{span.start_seconds:.3f}"


def _piece_row(recording_id: str, audio_id: str = "", span: Span | None = None, problem: str = "") -> Row:
    span = span or Span(start_seconds=0.0, end_seconds=0.0)
    return {"recording_id": recording_id, "audio_id": audio_id, "problem": problem, **span.model_dump()}


def problem_of(work: Callable[[], object], stage: Stage, counts: Counts) -> str:
    """Do it, and tell what went wrong; empty if nothing did. A full disk stops all the others as well."""
    try:
        work()
    except Exception as error:
        # The edge of a row: one bad file must not take the others with it.
        if _is_disk_full(error):
            counts.cancel()
            return DISK_FULL
        if isinstance(error, EncoreError):
            return str(error)
        _logger.exception("stage %s failed", stage)
        return f"A fault in Encore ({type(error).__name__}) kept it from being processed. The log has the details."
    return ""


def _is_disk_full(error: BaseException | None) -> bool:
    """Whether there was no room for a file, whatever was made of that since."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False
