"""The stages as Ray Data pipelines: rows of a recording or a clip go in, and come out with a result or a reason.

Two passes, because a recording can be cut only when all of it is transcribed:

    recordings -> decode (tasks) -> pieces -> transcribe (actors with a transcriber)
    recordings -> cut (tasks)    -> clips  -> tokenize (actors with an encoder)

Rows are small: sound and codes are in files named by their content, in a folder or a storage that all workers share.
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
from backend.dataset.build.ray_actors import TokenizeClips, TranscribePieces
from backend.dataset.build.ray_tasks import Row, cut, decode

# Small, so that one long recording keeps all actors busy and progress moves; large enough to batch on a GPU.
_ROWS_PER_BATCH = 4
# As many as Ray assigns to dividing rows, which then happens within the reading task.
_TASK_CPUS = 1.0
# Each holds a model of its own in memory; with more memory, more can be asked for.
_MAX_ACTORS = 4


@dataclass(frozen=True)
class Share:
    """How many actors a pass has, and what each may use."""

    num_actors: int
    num_cpus: float
    num_gpus: float


def share_of(
    resources: Mapping[str, float], wanted_actors: int | None, *, use_gpu: bool, spare_cpus: float = 0.0
) -> Share:
    """Divide a cluster: one core, even the only one, stays free for reading and cutting.

    Actors that hold all cores would wait forever for rows that no task can read; with `spare_cpus`, those of a machine,
    that holds as well when this machine is lost.
    """
    cpus, gpus = resources.get("CPU", 1.0), resources.get("GPU", 0.0)
    free_for_actors = max(0.0, cpus - _TASK_CPUS)
    free_after_loss = max(0.0, free_for_actors - spare_cpus)
    if use_gpu and gpus > 0:
        num_actors = wanted_actors or max(1, int(gpus))
        return Share(num_actors, min(1.0, free_after_loss / num_actors), min(1.0, gpus / num_actors))
    num_actors = wanted_actors or min(_MAX_ACTORS, max(1, int(free_for_actors)))
    # Ray counts resources in ten-thousandths, and refuses finer ones.
    return Share(num_actors, min(1.0, int(free_after_loss / num_actors * 100) / 100), 0.0)


def first_pass(rows: Sequence[Row], context: BuildContext, share: Share) -> ray.data.Dataset:
    """Decode recordings, and transcribe their pieces if there is a transcriber."""
    data = _tasks(_source(rows), decode, context)
    if context.transcriber is not None:
        data = _actors(data, TranscribePieces, context, share, len(rows))
    return data


def second_pass(rows: Sequence[Row], context: BuildContext, share: Share) -> ray.data.Dataset:
    """Cut recordings and tokenize their clips."""
    return _actors(_tasks(_source(rows), cut, context), TokenizeClips, context, share, len(rows))


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


def _tasks(data: ray.data.Dataset, work: Callable[..., Iterator[pa.Table]], context: BuildContext) -> ray.data.Dataset:
    return data.map_batches(
        work, fn_kwargs={"context": context}, batch_size=1, batch_format="pyarrow", num_cpus=_TASK_CPUS
    )


def _actors(
    data: ray.data.Dataset, worker: type[Any], context: BuildContext, share: Share, num_recordings: int
) -> ray.data.Dataset:
    # All at once: Ray adds actors only when the first has fallen behind, which it notices late.
    num_at_once = min(share.num_actors, num_recordings)
    return data.repartition(target_num_rows_per_block=_ROWS_PER_BATCH).map_batches(
        worker,
        fn_constructor_kwargs={"context": context},
        batch_size=_ROWS_PER_BATCH,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=num_at_once, max_size=share.num_actors),
        num_cpus=share.num_cpus,
        num_gpus=share.num_gpus,
    )
