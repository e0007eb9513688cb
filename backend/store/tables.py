"""The rows of one thing in all tables of the database: a dataset's, for example, in eight of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Literal

Kind = Literal["take", "voice", "dataset", "run"]

TABLES: Mapping[Kind, tuple[tuple[str, str], ...]] = {
    "take": (("takes", "id"),),
    "voice": (("voices", "id"), ("consents", "voice_id")),
    "dataset": (
        ("datasets", "name"),
        ("dataset_builds", "dataset"),
        ("dataset_stages", "dataset"),
        ("dataset_recordings", "dataset"),
        ("dataset_clips", "dataset"),
        ("dataset_reviews", "dataset"),
        ("dataset_edits", "dataset"),
        ("recording_consents", "dataset"),
    ),
    "run": (
        ("runs", "id"),
        ("run_checkpoints", "run_id"),
        ("run_metrics", "run_id"),
        ("run_takes", "run_id"),
        ("run_events", "run_id"),
    ),
}
"""The tables of each kind with the column that names a thing, in the order in which they refer to each other."""


def rows_of(connection: sqlite3.Connection, kind: Kind, item_id: str) -> Iterator[tuple[str, dict[str, object]]]:
    """All rows of a thing, each with its table, in an order in which they can be inserted again."""
    for table, column in TABLES[kind]:
        for row in connection.execute(f"SELECT * FROM {table} WHERE {column} = ?", (item_id,)):
            yield table, dict(row)


def insert_row(connection: sqlite3.Connection, table: str, row: Mapping[str, object]) -> None:
    """Put a row into a table."""
    marks = ", ".join(f":{name}" for name in row)
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", dict(row))
