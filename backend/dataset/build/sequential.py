"""The stages of a dataset one after the other in this process: for a clip or two, and where Ray cannot run."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from backend.dataset.build.context import BuildContext, SourceRecording
from backend.dataset.build.model_workers import TokenizeClips, TranscribePieces
from backend.dataset.build.passes import is_ready_to_cut
from backend.dataset.build.workers import CLIP_SCHEMA, PIECE_SCHEMA, SOURCE_SCHEMA, Row, cut, decode, source_row


def run_in_one_process(sources: Sequence[SourceRecording], order: BuildContext) -> dict[str, str]:
    """Do what `run_passes` does; tells what went wrong, by recording or clip."""
    order.counts.expect("decode", len(sources))
    tables = [pa.Table.from_pylist([source_row(source)], schema=SOURCE_SCHEMA) for source in sources]
    pieces = [row for table in tables for out in decode(table, order) for row in out.to_pylist()]
    if order.transcriber is not None:
        transcribe = TranscribePieces(order)
        pieces = [
            row
            for piece in pieces
            for row in transcribe(pa.Table.from_pylist([piece], schema=PIECE_SCHEMA)).to_pylist()
        ]
    order.counts.expect("cut", sum(is_ready_to_cut(source, order) for source in sources))
    clips = [row for table in tables for out in cut(table, order) for row in out.to_pylist()]
    tokenize = TokenizeClips(order)
    clips = [row for clip in clips for row in tokenize(pa.Table.from_pylist([clip], schema=CLIP_SCHEMA)).to_pylist()]
    return _problems(pieces, "recording_id") | _problems(clips, "clip_id")


def _problems(rows: Sequence[Row], key: str) -> dict[str, str]:
    return {row[key] or row["recording_id"]: row["problem"] for row in rows if row["problem"]}
