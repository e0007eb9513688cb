"""A dataset's rows on their way to Ray's workers: read once, handed out by Ray Data from its object store.

Every worker asks for all of them, so that a machine fetches them once and its workers share them. Ray Data splits none
of it: which clips go into which step is planned from the rows alone (`training.data.batching`), so that a step is the
same under torchrun, after a fault, and on any number of workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backend.cluster.connect import quiet_ray_data
from training.data.code_rows import ROWS_FILE, CodeRow, read_rows_table, rows_of_table

if TYPE_CHECKING:
    import ray.data

SHARD = "rows"
"""What the dataset is called among Ray Train's."""


def share_rows(dataset: Path) -> ray.data.Dataset:
    """Put a dataset's rows into the object store; for the process that starts the workers.

    Raises:
        TrainingDataError: they are missing or damaged.
    """
    import ray.data  # noqa: PLC0415 - in the driver's process only

    quiet_ray_data()
    # Read here rather than by Ray Data's own tasks: it is one file of a few megabytes, and tasks would wait for
    # processors that the workers of a run may all have taken.
    return ray.data.from_arrow(read_rows_table(dataset / ROWS_FILE))


def rows_for_everyone() -> Any:  # Ray Train's two versions share the name
    """How Ray Train is to hand the rows out: whole, to each worker."""
    import ray.train  # noqa: PLC0415 - see `share_rows`

    return ray.train.DataConfig(datasets_to_split=[])


def fetch_rows() -> list[CodeRow]:
    """All rows, on a worker that Ray Train started."""
    import ray.train  # noqa: PLC0415 - see `share_rows`

    quiet_ray_data()
    shard: Any = ray.train.get_dataset_shard(SHARD)
    tables = list(shard.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
    return rows_of_table(pa.concat_tables(tables)) if tables else []
