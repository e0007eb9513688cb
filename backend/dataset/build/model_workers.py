"""What runs in Ray's actors: the two stages that need a model, and a row that fails carries its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import torch

from backend.dataset.build.context import BuildContext
from backend.dataset.build.progress import Outcome
from backend.dataset.build.workers import CLIP_SCHEMA, PIECE_SCHEMA, Row, piece_name, problem_of
from backend.dataset.clips.records import Span
from backend.transcription.transcriber import Transcriber

if TYPE_CHECKING:
    from backend.dataset.stages.clip_encoder import ClipEncoder


class TranscribePieces:
    """An actor that holds a transcriber, once there is something to hear."""

    def __init__(self, order: BuildContext) -> None:
        self._order = order
        self._transcriber: Transcriber | None = None

    def __call__(self, table: pa.Table) -> pa.Table:
        """Transcribe a batch of pieces."""
        _compute_on_one_core()
        return pa.Table.from_pylist([self._transcribe(row) for row in table.to_pylist()], schema=PIECE_SCHEMA)

    def _transcribe(self, row: Row) -> Row:
        order, stage = self._order, self._order.transcribe_stage
        if row["problem"] or stage is None or not order.counts.begin("transcribe"):
            return row
        span = Span(start_seconds=row["start_seconds"], end_seconds=row["end_seconds"])
        name = piece_name(row["audio_id"], span)
        if stage.find(row["audio_id"], span) is not None:
            order.counts.add("transcribe", name, "reused")
            return row
        problem = problem_of(lambda: stage.run(row["audio_id"], span, self._loaded()), "transcribe", order.counts)
        seconds = span.end_seconds - span.start_seconds
        order.counts.add("transcribe", name, "failed" if problem else "worked", seconds)
        return row | {"problem": problem}

    def _loaded(self) -> Transcriber:
        if self._transcriber is None:
            assert self._order.transcriber is not None
            self._transcriber = self._order.transcriber.load(self._order.job.device)
        return self._transcriber


class TokenizeClips:
    """An actor that holds speech tokenizer and speaker encoder, once there is something to encode."""

    def __init__(self, order: BuildContext) -> None:
        self._order = order
        self._encoder: ClipEncoder | None = None

    def __call__(self, table: pa.Table) -> pa.Table:
        """Tokenize a batch of clips: together, or one by one when that fails."""
        _compute_on_one_core()
        rows: list[Row] = table.to_pylist()
        if not self._order.counts.begin("tokenize"):
            return pa.Table.from_pylist(rows, schema=CLIP_SCHEMA)
        missing: list[Row] = []
        for row in rows:
            if row["problem"]:
                continue
            if self._order.tokenized(row["clip_id"]) is not None:
                self._order.counts.add("tokenize", row["clip_id"], "reused")
            else:
                missing.append(row)
        if missing and self._problem_with(missing):
            for row in missing:
                row["problem"] = self._problem_with([row])
        for row in missing:
            outcome: Outcome = "failed" if row["problem"] else "worked"
            self._order.counts.add("tokenize", row["clip_id"], outcome, row["seconds"])
        return pa.Table.from_pylist(rows, schema=CLIP_SCHEMA)

    def _problem_with(self, rows: list[Row]) -> str:
        clip_ids = list(dict.fromkeys(row["clip_id"] for row in rows))
        order = self._order
        return problem_of(lambda: order.tokenize_stage.run(clip_ids, self._loaded()), "tokenize", order.counts)

    def _loaded(self) -> ClipEncoder:
        if self._encoder is None:
            # Here: the networks take seconds to load, which whoever transcribes has no use for.
            from backend.dataset.stages.clip_encoder import ClipEncoder  # noqa: PLC0415 - see above

            self._encoder = ClipEncoder.load(self._order.model_folder, self._order.job.device)
        return self._encoder


def _compute_on_one_core() -> None:
    """Leave the other cores to other workers. Per thread, and Ray works in another one than it constructs in."""
    torch.set_num_threads(1)
