"""The rows of datasets on their way to Ray's workers: read once, handed out by Ray Data from its object store.

Every worker asks for all of them, so that a machine fetches them once and its workers share them. Ray Data splits none
of it: which clips go into which step is planned from the rows alone (`training.data.batching`), so that a step is the
same under torchrun, after a fault, and on any number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from backend.cluster.connect import quiet_ray_data
from training.data.code_rows import ROWS_FILE, CodeRow, read_rows_table, rows_of_table

if TYPE_CHECKING:
    import ray.data

SHARD = "rows"
"""What the dataset is called among Ray Train's."""


_SPEAKER = "speaker"
"""Column with the number of the speaker, beside those of a dataset."""


def share_rows(datasets: Sequence[Path]) -> ray.data.Dataset:
    """Put the rows of each speaker's dataset into the object store; for the process that starts the workers.

    Raises:
        TrainingDataError: they are missing or damaged.
    """
    import ray.data  # noqa: PLC0415 - in the driver's process only

    quiet_ray_data()
    # Read here rather than by Ray Data's own tasks: it is one file of a few megabytes, and tasks would wait for
    # processors that the workers of a run may all have taken.
    return ray.data.from_arrow(numbered_rows(datasets))


def numbered_rows(datasets: Sequence[Path]) -> pa.Table:
    """The rows of each speaker's dataset, with the number of the speaker. Raises TrainingDataError."""
    tables = [read_rows_table(dataset / ROWS_FILE) for dataset in datasets]
    return pa.concat_tables(
        table.append_column(_SPEAKER, pa.array([number] * len(table), pa.int32()))
        for number, table in enumerate(tables)
    )


def rows_for_everyone() -> Any:  # Ray Train's two versions share the name
    """How Ray Train is to hand the rows out: whole, to each worker."""
    import ray.train  # noqa: PLC0415 - see `share_rows`

    return ray.train.DataConfig(datasets_to_split=[])


def fetch_rows(num_speakers: int) -> list[list[CodeRow]]:
    """All rows of each speaker, on a worker that Ray Train started."""
    import ray.train  # noqa: PLC0415 - see `share_rows`

    quiet_ray_data()
    shard: Any = ray.train.get_dataset_shard(SHARD)
    tables = list(shard.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
    return rows_by_speaker(pa.concat_tables(tables), num_speakers) if tables else [[]] * num_speakers


def rows_by_speaker(table: pa.Table, num_speakers: int) -> list[list[CodeRow]]:
    """The rows of a table from `share_rows`, in any order, for each speaker."""
    number = table[_SPEAKER]
    own = [table.filter(pc.equal(number, speaker)) for speaker in range(num_speakers)]
    return [rows_of_table(one.drop_columns([_SPEAKER])) for one in own]
