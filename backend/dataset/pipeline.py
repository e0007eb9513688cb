"""The stages as Ray Data pipelines: rows of a recording or a clip go in, and come out with a result or a reason.

Two passes, because a recording can be cut only when all of it was heard:

    recordings -> decode (readers) -> pieces -> transcribe (actors with a transcriber)
    recordings -> cut (readers)    -> clips  -> tokenize (actors with an encoder)

Readers are actors too: Ray ends the process of a task a second after its last row where cores are few, and starting
another takes longer than most recordings do.

Rows are small: sound and codes lie in files that are named by their content, on a path all workers share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import ray
import ray.data

from backend.dataset.model_workers import TokenizeClips, TranscribePieces
from backend.dataset.stage_workers import Reader, Row, cut, decode
from backend.dataset.work_order import WorkOrder

# Small, so that one long recording keeps all actors busy and progress moves; large enough to batch on a GPU.
_ROWS_PER_BATCH = 4
_READER_CPUS = 0.5
# Each holds a model of its own in memory; who has room for more asks for more.
_MOST_ACTORS = 4


@dataclass(frozen=True)
class Share:
    """How many actors a pass has, and what each may use."""

    num_actors: int
    num_cpus: float
    num_gpus: float
    num_readers: int


def share_of(resources: Mapping[str, float], wanted_actors: int | None, *, use_gpu: bool) -> Share:
    """Divide a cluster: at least one core, or half of the only one, stays free for reading and cutting.

    Actors that hold all cores would wait for rows that nobody is left to read.
    """
    cpus, gpus = resources.get("CPU", 1.0), resources.get("GPU", 0.0)
    free_for_actors = cpus - 1.0 if cpus > 1.0 else cpus / 2
    if use_gpu and gpus > 0:
        num_actors = wanted_actors or max(1, int(gpus))
        num_cpus = min(1.0, free_for_actors / num_actors)
        return Share(num_actors, num_cpus, min(1.0, gpus / num_actors), _readers(cpus - num_actors * num_cpus))
    num_actors = wanted_actors or min(_MOST_ACTORS, max(1, int(free_for_actors)))
    # Ray counts resources in ten-thousandths, and refuses finer ones.
    num_cpus = min(1.0, int(free_for_actors / num_actors * 100) / 100)
    return Share(num_actors, num_cpus, 0.0, _readers(cpus - num_actors * num_cpus))


def _readers(free_cpus: float) -> int:
    """They may hold half of what the actors leave: Ray has rows of its own to move."""
    return max(1, int(free_cpus / 2 / _READER_CPUS))


def listen_pass(rows: Sequence[Row], order: WorkOrder, share: Share) -> Iterator[Row]:
    """Decode recordings, and transcribe their pieces where the order names a transcriber."""
    data = _readings(_source(rows), decode, order, share)
    if order.transcriber is not None:
        data = _actors(data, TranscribePieces, order, share, len(rows))
    return _rows(data)


def tokenize_pass(rows: Sequence[Row], order: WorkOrder, share: Share) -> Iterator[Row]:
    """Cut recordings and tokenize their clips."""
    return _rows(_actors(_readings(_source(rows), cut, order, share), TokenizeClips, order, share, len(rows)))


def _source(rows: Sequence[Row]) -> ray.data.Dataset:
    # One recording per block: the next one is read while this one is worked on, and memory does not grow with them.
    return ray.data.from_items(list(rows), override_num_blocks=len(rows))


def _readings(data: ray.data.Dataset, work: Callable[..., Any], order: WorkOrder, share: Share) -> ray.data.Dataset:
    return data.map_batches(
        Reader,
        fn_constructor_kwargs={"work": work, "order": order},
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=share.num_readers),
        num_cpus=_READER_CPUS,
    )


def _actors(
    data: ray.data.Dataset, worker: type[Any], order: WorkOrder, share: Share, num_recordings: int
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


def _rows(data: ray.data.Dataset) -> Iterator[Row]:
    # Any: batches of pyarrow, in an iterator that Ray describes by its protocol alone. Closing stops the workers.
    stream: Any = iter(data.iter_batches(batch_size=None, batch_format="pyarrow"))
    with closing(stream) as batches:
        for batch in batches:
            yield from batch.to_pylist()
