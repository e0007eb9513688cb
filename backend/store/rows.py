"""Rows of the database that cannot be understood: one of them must not hide the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from backend.store.errors import RowDamaged

Row = TypeVar("Row")
Record = TypeVar("Record")

_logger = logging.getLogger(__name__)


@contextmanager
def understanding(what: str) -> Iterator[None]:
    """Turn whatever a damaged row makes its reader raise into RowDamaged; `what` names it, such as "take 3f2a"."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:  # a pydantic ValidationError is a ValueError
        raise RowDamaged(
            f"What the database says of {what} is damaged. Delete it, or go back to a copy of the database."
        ) from error


def understood(rows: Iterable[Row], read: Callable[[Row], Record]) -> list[Record]:
    """The records of all rows that can be understood; of the others a warning tells."""
    records = []
    for row in rows:
        try:
            records.append(read(row))
        except RowDamaged as error:
            _logger.warning("%s", error)
    return records
