"""Both passes of a build, on Ray or in this process, over the recordings that have something missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import ray

from backend.dataset.build.context import BuildContext
from backend.dataset.build.exchange import BuildExchange
from backend.dataset.build.ray_actors import TokenizeClips, TranscribePieces
from backend.dataset.build.ray_pipeline import first_pass, rows_of, second_pass, share_of
from backend.dataset.build.ray_tasks import (
    CLIP_SCHEMA,
    PIECE_SCHEMA,
    SOURCE_SCHEMA,
    Row,
    cut,
    decode,
    piece_name,
    source_row,
)
from backend.dataset.sources.find import SourceRecording
from training.model.device import choose_device


def is_first_pass_done(source: SourceRecording, context: BuildContext) -> bool:
    """Whether the first pass has nothing to do for a recording."""
    decoded = context.lookup_decoded(source)
    return decoded is not None and (bool(decoded.problem) or context.is_transcribed(decoded))


def is_ready_to_cut(source: SourceRecording, context: BuildContext) -> bool:
    """Whether a recording can be cut: decoded, and transcribed if there is a transcriber."""
    return context.lookup_to_cut(source) is not None


def is_second_pass_done(source: SourceRecording, context: BuildContext) -> bool:
    """Whether the second pass has nothing to do for a recording."""
    if not is_ready_to_cut(source, context):
        return True
    cut = context.lookup_cut(source)
    return cut is not None and all(context.lookup_tokenized(clip.clip_id) is not None for clip in cut.clips)


def run_passes(
    sources: Sequence[SourceRecording], context: BuildContext, exchange: BuildExchange | None = None
) -> dict[str, str]:
    """Run what is missing on the Ray that is connected; returns what went wrong, by recording or clip.

    Args:
        sources: the recordings.
        context: of this machine, which has the home.
        exchange: by which other machines, which do not see it, get what they need; None if all do.

    Raises:
        StorageError: the exchange cannot be used.
    """
    context_there = context if exchange is None else exchange.context_there
    carry = nullcontext if exchange is None else exchange.carry
    share = share_of(
        _free_resources(),
        context.job.num_actors,
        use_gpu=choose_device(context.job.device).type in ("cuda", "xpu"),
        spare_cpus=_cpus_to_lose(),
    )
    problems: dict[str, str] = {}
    context.counts.expect("decode", len(sources))
    done = [source for source in sources if is_first_pass_done(source, context)]
    _count_first_pass(done, context)
    if left := _without(sources, done):
        with carry(left):
            for row in rows_of(first_pass([source_row(source) for source in left], context_there, share)):
                if row["problem"]:
                    problems[row["recording_id"]] = row["problem"]
    if not context.counts.begin("cut"):
        return problems  # cancelled
    usable = [source for source in sources if is_ready_to_cut(source, context)]
    context.counts.expect("cut", len(usable))
    done = [source for source in usable if is_second_pass_done(source, context)]
    _count_tokenized(done, context)
    if left := _without(usable, done):
        with carry(left):
            for row in rows_of(second_pass([source_row(source) for source in left], context_there, share)):
                if row["problem"]:
                    problems[row["clip_id"] or row["recording_id"]] = row["problem"]
    return problems


def run_in_one_process(sources: Sequence[SourceRecording], context: BuildContext) -> dict[str, str]:
    """Do what `run_passes` does without Ray: for a clip or two, and where Ray cannot run."""
    context.counts.expect("decode", len(sources))
    tables = [pa.Table.from_pylist([source_row(source)], schema=SOURCE_SCHEMA) for source in sources]
    pieces = [row for table in tables for out in decode(table, context) for row in out.to_pylist()]
    if context.transcriber is not None:
        transcribe = TranscribePieces(context)
        pieces = [row for piece in pieces for row in transcribe(_table(piece, PIECE_SCHEMA)).to_pylist()]
    context.counts.expect("cut", sum(is_ready_to_cut(source, context) for source in sources))
    clips = [row for table in tables for out in cut(table, context) for row in out.to_pylist()]
    tokenize = TokenizeClips(context)
    clips = [row for clip in clips for row in tokenize(_table(clip, CLIP_SCHEMA)).to_pylist()]
    return {row["recording_id"]: row["problem"] for row in pieces if row["problem"]} | {
        row["clip_id"] or row["recording_id"]: row["problem"] for row in clips if row["problem"]
    }


def count_as_reused(sources: Sequence[SourceRecording], context: BuildContext) -> None:
    """Count everything as found ready; nothing is missing."""
    context.counts.expect("decode", len(sources))
    _count_first_pass(sources, context)
    usable = [source for source in sources if is_ready_to_cut(source, context)]
    context.counts.expect("cut", len(usable))
    _count_tokenized(usable, context)


def _table(row: Row, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([row], schema=schema)


def _free_resources() -> dict[str, float]:
    """What no other job holds: actors planned for all of a shared cluster would leave no core to read with."""
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray leaves it out
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return {kind: min(amount, free.get(kind, 0.0)) for kind, amount in there.items()}


def _cpus_to_lose() -> float:
    """Those of the largest machine; none where there is only one, whose loss is that of all."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Any: Ray describes them so
    cpus = [node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]]
    sizes = [float(number) for number in cpus if number]
    return max(sizes) if len(sizes) > 1 else 0.0


def _count_first_pass(sources: Sequence[SourceRecording], context: BuildContext) -> None:
    for source in sources:
        decoded = context.lookup_decoded(source)
        assert decoded is not None, "the caller has found it"
        names = [piece_name(decoded.audio_id, span) for span in context.pieces(decoded)]
        context.counts.add("decode", source.recording_id, "reused")
        context.counts.announce("transcribe", source.recording_id, frozenset(names))
        for name in names:
            context.counts.add("transcribe", name, "reused")


def _count_tokenized(sources: Sequence[SourceRecording], context: BuildContext) -> None:
    for source in sources:
        cut = context.lookup_cut(source)
        assert cut is not None, "the caller has found it"
        context.counts.add("cut", source.recording_id, "reused")
        context.counts.announce("tokenize", source.recording_id, frozenset(clip.clip_id for clip in cut.clips))
        for clip in cut.clips:
            context.counts.add("tokenize", clip.clip_id, "reused")


def _without(sources: Sequence[SourceRecording], done: Sequence[SourceRecording]) -> list[SourceRecording]:
    finished = {source.recording_id for source in done}
    return [source for source in sources if source.recording_id not in finished]
