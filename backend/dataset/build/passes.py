"""Both passes of a build, over those recordings alone that have something missing."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from backend.dataset.build.context import BuildContext, SourceRecording
from backend.dataset.build.ray_pipeline import listen_pass, rows_of, share_of, tokenize_pass
from backend.dataset.build.workers import piece_name, source_row
from training.model.device import choose_device


def is_listened_to(source: SourceRecording, order: BuildContext) -> bool:
    """Whether the first pass has nothing to do for a recording."""
    decoded = order.decode_stage.find(source.recording_id, source.name)
    return decoded is not None and (bool(decoded.problem) or order.is_heard(decoded))


def is_ready_to_cut(source: SourceRecording, order: BuildContext) -> bool:
    """Whether a recording can be cut: decoded, and heard where somebody listens."""
    decoded = order.decode_stage.find(source.recording_id, source.name)
    return decoded is not None and not decoded.problem and order.is_heard(decoded)


def is_tokenized(source: SourceRecording, order: BuildContext) -> bool:
    """Whether the second pass has nothing to do for a recording."""
    if not is_ready_to_cut(source, order):
        return True
    cut = order.cut(source)
    return cut is not None and all(order.tokenized(clip.clip_id) is not None for clip in cut.clips)


def run_passes(sources: Sequence[SourceRecording], order: BuildContext) -> dict[str, str]:
    """Run what is missing on the Ray that is connected; tells what went wrong, by recording or clip."""
    share = share_of(_free_resources(), order.job.num_actors, use_gpu=choose_device(order.job.device).type == "cuda")
    problems: dict[str, str] = {}
    order.counts.expect("decode", len(sources))
    done = [source for source in sources if is_listened_to(source, order)]
    _count_listened(done, order)
    if left := _without(sources, done):
        for row in rows_of(listen_pass([source_row(source) for source in left], order, share)):
            if row["problem"]:
                problems[row["recording_id"]] = row["problem"]
    if not order.counts.begin("cut"):
        return problems  # cancelled
    usable = [source for source in sources if is_ready_to_cut(source, order)]
    order.counts.expect("cut", len(usable))
    done = [source for source in usable if is_tokenized(source, order)]
    _count_tokenized(done, order)
    if left := _without(usable, done):
        for row in rows_of(tokenize_pass([source_row(source) for source in left], order, share)):
            if row["problem"]:
                problems[row["clip_id"] or row["recording_id"]] = row["problem"]
    return problems


def count_as_reused(sources: Sequence[SourceRecording], order: BuildContext) -> None:
    """Count everything as found ready; nothing is missing."""
    order.counts.expect("decode", len(sources))
    _count_listened(sources, order)
    usable = [source for source in sources if is_ready_to_cut(source, order)]
    order.counts.expect("cut", len(usable))
    _count_tokenized(usable, order)


def _free_resources() -> dict[str, float]:
    """What nobody else holds: actors planned for all of a shared cluster would leave nothing to read with, for ever."""
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray leaves it out
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return {kind: min(amount, free.get(kind, 0.0)) for kind, amount in there.items()}


def _count_listened(sources: Sequence[SourceRecording], order: BuildContext) -> None:
    for source in sources:
        decoded = order.decode_stage.find(source.recording_id, source.name)
        assert decoded is not None, "it was found a moment ago"
        names = [piece_name(decoded.audio_id, span) for span in order.pieces(decoded)]
        order.counts.add("decode", source.recording_id, "reused")
        order.counts.announce("transcribe", source.recording_id, frozenset(names))
        for name in names:
            order.counts.add("transcribe", name, "reused")


def _count_tokenized(sources: Sequence[SourceRecording], order: BuildContext) -> None:
    for source in sources:
        cut = order.cut(source)
        assert cut is not None, "it was found a moment ago"
        order.counts.add("cut", source.recording_id, "reused")
        order.counts.announce("tokenize", source.recording_id, frozenset(clip.clip_id for clip in cut.clips))
        for clip in cut.clips:
            order.counts.add("tokenize", clip.clip_id, "reused")


def _without(sources: Sequence[SourceRecording], done: Sequence[SourceRecording]) -> list[SourceRecording]:
    finished = {source.recording_id for source in done}
    return [source for source in sources if source.recording_id not in finished]
