"""What tenants have used of their limits, counted in the database: right with any number of processes and restarts.

A count is one short transaction, which does not wait for the disk: after a power cut the last of them may be missing.
"""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from backend.store.database import Database
from backend.tenants.errors import QuotaExceeded

_MINUTE_SECONDS = 60.0
_DAY_SECONDS = 24 * 3600
_KEPT_DAYS = 31


@dataclass(frozen=True, kw_only=True)
class Left:
    """What is left of one limit.

    Attributes:
        limit: all of it.
        remaining: of that.
        reset_seconds: until all of it is there again.
    """

    limit: int
    remaining: int
    reset_seconds: float


class Usage:
    """Counts requests and characters by tenant; may be used from any thread."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """Count in a database; `clock` gives seconds since 1970, which all processes agree on."""
        self._database, self._clock = database, clock
        self._holding: weakref.finalize[[], Usage] | None = None

    def take_request(self, tenant: str, per_minute: int) -> Left:
        """Count a request, if there is one left: a bucket of a minute's requests that fills evenly.

        Raises:
            QuotaExceeded: there is none; nothing is counted.
        """
        per_second = per_minute / _MINUTE_SECONDS
        with self._counting() as connection:
            now = self._clock()
            row = connection.execute("SELECT num_left, at FROM tenant_requests WHERE tenant = ?", (tenant,)).fetchone()
            # A clock that was set back fills nothing, and from then on what it says now counts.
            num_left = float(per_minute) if row is None else row["num_left"] + max(0.0, now - row["at"]) * per_second
            num_left = min(num_left, float(per_minute))
            is_left = num_left >= 1
            num_left -= is_left
            connection.execute("INSERT OR REPLACE INTO tenant_requests VALUES (?, ?, ?)", (tenant, num_left, now))
        if not is_left:
            raise QuotaExceeded(
                f"The limit is {per_minute} requests per minute. Send them more slowly.",
                retry_after_seconds=(1 - num_left) / per_second,
            )
        reset_seconds = (per_minute - num_left) / per_second
        return Left(limit=per_minute, remaining=int(num_left), reset_seconds=reset_seconds)

    def requests_left(self, tenant: str, per_minute: int) -> Left:
        """What is left now; counts nothing."""
        per_second = per_minute / _MINUTE_SECONDS
        with self._database.reading() as connection:
            row = connection.execute("SELECT num_left, at FROM tenant_requests WHERE tenant = ?", (tenant,)).fetchone()
        num_left = float(per_minute)
        if row is not None:
            num_left = min(num_left, row["num_left"] + max(0.0, self._clock() - row["at"]) * per_second)
        return Left(limit=per_minute, remaining=int(num_left), reset_seconds=(per_minute - num_left) / per_second)

    def spend_characters(self, tenant: str, number: int, per_day: int) -> str:
        """Count characters, if so many are left; returns the day they belong to.

        Raises:
            QuotaExceeded: there are fewer; nothing is counted.
        """
        with self._counting() as connection:
            day = self._day()
            num_used = _num_used(connection, tenant, day)
            self._require(number, per_day, num_used)
            if not num_used:
                oldest = datetime.fromtimestamp(self._clock() - _KEPT_DAYS * _DAY_SECONDS, UTC).date().isoformat()
                connection.execute("DELETE FROM tenant_characters WHERE day < ?", (oldest,))
            connection.execute(
                "INSERT INTO tenant_characters VALUES (?, ?, ?) ON CONFLICT (tenant, day)"
                " DO UPDATE SET num_characters = num_characters + excluded.num_characters",
                (tenant, day, number),
            )
        return day

    def require_characters(self, tenant: str, number: int, per_day: int) -> None:
        """Refuse what cannot be spoken in whole, and count nothing. Raises QuotaExceeded."""
        with self._database.reading() as connection:
            num_used = _num_used(connection, tenant, self._day())
        self._require(number, per_day, num_used)

    def give_back(self, tenant: str, number: int, day: str) -> None:
        """Take back characters of a day that were not spoken after all."""
        with self._counting() as connection:
            connection.execute(
                "UPDATE tenant_characters SET num_characters = max(0, num_characters - ?) WHERE tenant = ? AND day = ?",
                (number, tenant, day),
            )

    def characters_left(self, tenant: str, per_day: int) -> Left:
        """What is left of today."""
        with self._database.reading() as connection:
            num_used = _num_used(connection, tenant, self._day())
        return Left(limit=per_day, remaining=max(0, per_day - num_used), reset_seconds=self._seconds_to_midnight())

    def _counting(self) -> AbstractContextManager[sqlite3.Connection]:
        if self._holding is None:
            # Two threads may both do it; both let go when this object goes.
            self._holding = weakref.finalize(self, self._database.hold_open())
        return self._database.transaction(is_durable=False)

    def _require(self, number: int, per_day: int, num_used: int) -> None:
        if number > per_day - num_used:
            raise QuotaExceeded(
                f"{number} characters are more than the {max(0, per_day - num_used)} that are left of today's "
                f"{per_day}. Send a shorter text, or wait for midnight UTC.",
                retry_after_seconds=self._seconds_to_midnight(),
            )

    def _day(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).date().isoformat()

    def _seconds_to_midnight(self) -> float:
        return _DAY_SECONDS - self._clock() % _DAY_SECONDS


def _num_used(connection: sqlite3.Connection, tenant: str, day: str) -> int:
    wanted = "SELECT num_characters FROM tenant_characters WHERE tenant = ? AND day = ?"
    row = connection.execute(wanted, (tenant, day)).fetchone()
    return 0 if row is None else int(row["num_characters"])
