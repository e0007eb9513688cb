"""What runs in Ray's actors: the two stages that need a model. A row that fails carries its reason on."""

from __future__ import annotations

import pyarrow as pa
import torch

from backend.audio.span import Span
from backend.dataset.build.context import BuildContext
from backend.dataset.build.ray_tasks import CLIP_SCHEMA, FAILED, PIECE_SCHEMA, Row, attempt, piece_name
from backend.dataset.clips.stage_counts import Outcome
from backend.dataset.clips.stage_results import TokenizedClip
from backend.dataset.stages.tokenize import Encoder, tokenize_clips
from backend.transcription.transcriber import Transcriber


class TranscribePieces:
    """An actor that holds a transcriber, loaded for the first piece that needs it."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._transcriber: Transcriber | None = None

    def __call__(self, table: pa.Table) -> pa.Table:
        """Transcribe a batch of pieces."""
        _compute_on_one_core()
        return pa.Table.from_pylist([self._transcribe(row) for row in table.to_pylist()], schema=PIECE_SCHEMA)

    def _transcribe(self, row: Row) -> Row:
        context = self._context
        if row["problem"] or not context.counts.begin("transcribe"):
            return row
        audio_id, span = row["audio_id"], Span(start_seconds=row["start_seconds"], end_seconds=row["end_seconds"])
        found, problem = attempt(lambda: context.transcribe(audio_id, span, self._loaded), "transcribe", context.counts)
        outcome = FAILED if found is None else found[1]
        context.counts.add("transcribe", piece_name(audio_id, span), outcome, span.seconds)
        return row | {"problem": problem}

    def _loaded(self) -> Transcriber:
        if self._transcriber is None:
            self._transcriber = self._context.load_transcriber()
        return self._transcriber


class TokenizeClips:
    """An actor that holds speech tokenizer and speaker encoder, loaded for the first clip that needs them."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._encoder: Encoder | None = None

    def __call__(self, table: pa.Table) -> pa.Table:
        """Tokenize a batch of clips: together, or one by one when that fails."""
        _compute_on_one_core()
        rows: list[Row] = table.to_pylist()
        if not self._context.counts.begin("tokenize"):
            return pa.Table.from_pylist(rows, schema=CLIP_SCHEMA)
        missing: list[Row] = []
        for row in rows:
            if row["problem"]:
                continue
            found, row["problem"] = self._look_up(row["clip_id"])
            if found is not None:
                self._context.counts.add("tokenize", row["clip_id"], "reused")
            elif not row["problem"]:
                missing.append(row)
        if missing and self._problem_with(missing):
            for row in missing:
                row["problem"] = self._problem_with([row])
        for row in missing:
            outcome: Outcome = FAILED if row["problem"] else "worked"
            self._context.counts.add("tokenize", row["clip_id"], outcome, row["seconds"])
        return pa.Table.from_pylist(rows, schema=CLIP_SCHEMA)

    def _look_up(self, clip_id: str) -> tuple[TokenizedClip | None, str]:
        context = self._context
        return attempt(lambda: context.lookup_tokenized(clip_id), "tokenize", context.counts)

    def _problem_with(self, rows: list[Row]) -> str:
        clip_ids, context = list(dict.fromkeys(row["clip_id"] for row in rows)), self._context
        return attempt(lambda: tokenize_clips(context.workspace, clip_ids, self._loaded()), "tokenize", context.counts)[
            1
        ]

    def _loaded(self) -> Encoder:
        if self._encoder is None:
            # Here: the networks take seconds to load, and transcribing does not need them.
            from backend.dataset.stages.clip_encoder import ClipEncoder  # noqa: PLC0415 - see above

            context = self._context
            self._encoder = ClipEncoder.load(
                context.model_here(), context.job.device, verifier_weights=context.verifier_here()
            )
        return self._encoder


def _compute_on_one_core() -> None:
    """Leave the other cores to other workers. Per thread, and Ray works in another one than it constructs in."""
    torch.set_num_threads(1)
