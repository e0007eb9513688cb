"""Rows of several speakers on their way through one pipeline, which keeps no order."""

from __future__ import annotations

import pyarrow as pa

from backend.runs.process.ray_dataset import numbered_rows, rows_by_speaker
from tests.backend.runs.small_dataset import write_small_dataset
from training.data.code_rows import ROWS_FILE, read_code_rows


def test_each_speaker_gets_the_rows_of_its_own_dataset_back(tmp_path) -> None:
    folders = [write_small_dataset(tmp_path / name, num_clips=4, seed=seed) for seed, name in enumerate(("a", "b"))]
    table = numbered_rows(folders)
    mixed = table.take(pa.array([7, 0, 5, 2, 4, 1, 6, 3]))
    for folder, found in zip(folders, rows_by_speaker(mixed, 2), strict=True):
        expected = read_code_rows(folder / ROWS_FILE)
        assert sorted(found, key=lambda row: row.clip_id) == sorted(expected, key=lambda row: row.clip_id)
