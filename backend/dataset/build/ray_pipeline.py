"""The stages as Ray Data pipelines: rows of a recording or a clip go in, and come out with a result or a reason.

Two passes, because a recording can be cut only when all of it was heard:

    recordings -> decode (tasks) -> pieces -> transcribe (actors with a transcriber)
    recordings -> cut (tasks)    -> clips  -> tokenize (actors with an encoder)

Rows are small: sound and codes lie in files that are named by their content, on a path all workers share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
import ray.data

from backend.dataset.build.context import BuildContext
from backend.dataset.build.model_workers import TokenizeClips, TranscribePieces
from backend.dataset.build.workers import Row, cut, decode

# Small, so that one long recording keeps all actors busy and progress moves; large enough to batch on a GPU.
_ROWS_PER_BATCH = 4
# What Ray reckons for dividing rows as well, which only then happens in the reading task itself, not in one of its own.
_TASK_CPUS = 1.0
# Each holds a model of its own in memory; who has room for more asks for more.
_MAX_ACTORS = 4


@dataclass(frozen=True)
class Share:
    """How many actors a pass has, and what each may use."""

    num_actors: int
    num_cpus: float
    num_gpus: float


def share_of(resources: Mapping[str, float], wanted_actors: int | None, *, use_gpu: bool) -> Share:
    """Divide a cluster: one core stays free for reading and cutting, the only one too.

    Actors that hold all cores would wait for rows that nobody is left to read.
    """
    cpus, gpus = resources.get("CPU", 1.0), resources.get("GPU", 0.0)
    free_for_actors = max(0.0, cpus - _TASK_CPUS)
    if use_gpu and gpus > 0:
        num_actors = wanted_actors or max(1, int(gpus))
        return Share(num_actors, min(1.0, free_for_actors / num_actors), min(1.0, gpus / num_actors))
    num_actors = wanted_actors or min(_MAX_ACTORS, max(1, int(free_for_actors)))
    # Ray counts resources in ten-thousandths, and refuses finer ones.
    return Share(num_actors, min(1.0, int(free_for_actors / num_actors * 100) / 100), 0.0)


def listen_pass(rows: Sequence[Row], order: BuildContext, share: Share) -> ray.data.Dataset:
    """Decode recordings, and transcribe their pieces where the order names a transcriber."""
    data = _tasks(_source(rows), decode, order)
    if order.transcriber is not None:
        data = _actors(data, TranscribePieces, order, share, len(rows))
    return data


def tokenize_pass(rows: Sequence[Row], order: BuildContext, share: Share) -> ray.data.Dataset:
    """Cut recordings and tokenize their clips."""
    return _actors(_tasks(_source(rows), cut, order), TokenizeClips, order, share, len(rows))


def rows_of(data: ray.data.Dataset) -> Iterator[Row]:
    """Run a pass; its rows as they come. Closing stops the workers."""
    # Any: batches of pyarrow, in an iterator that Ray describes by its protocol alone.
    stream: Any = iter(data.iter_batches(batch_size=None, batch_format="pyarrow"))
    with closing(stream) as batches:
        for batch in batches:
            yield from batch.to_pylist()


def _source(rows: Sequence[Row]) -> ray.data.Dataset:
    # One recording per block: the next one is read while this one is worked on, and memory does not grow with them.
    return ray.data.from_items(list(rows), override_num_blocks=len(rows))


def _tasks(data: ray.data.Dataset, work: Callable[..., Iterator[pa.Table]], order: BuildContext) -> ray.data.Dataset:
    return data.map_batches(work, fn_kwargs={"order": order}, batch_size=1, batch_format="pyarrow", num_cpus=_TASK_CPUS)


def _actors(
    data: ray.data.Dataset, worker: type[Any], order: BuildContext, share: Share, num_recordings: int
) -> ray.data.Dataset:
    # Where only one is sure to be needed the others come when it has too much to do, which is seen late.
    num_at_once = min(share.num_actors, num_recordings)
    return data.repartition(target_num_rows_per_block=_ROWS_PER_BATCH).map_batches(
        worker,
        fn_constructor_kwargs={"order": order},
        batch_size=_ROWS_PER_BATCH,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=num_at_once, max_size=share.num_actors),
        num_cpus=share.num_cpus,
        num_gpus=share.num_gpus,
    )
