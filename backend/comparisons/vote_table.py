"""Comparisons and the votes on them, as rows of the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from backend.comparisons.comparison import LETTERS, Comparison, Letter, Verdict
from backend.comparisons.errors import ComparisonError
from backend.comparisons.preference import Tally, tally
from backend.evaluation.scores import TakeScores
from backend.store.database import Database
from backend.store.rows import understanding, understood


class VoteTable:
    """Stores comparisons and votes; any number of threads and processes may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, comparison: Comparison) -> None:
        """Store a comparison to vote on."""
        takes = [take.model_dump(mode="json") for take in comparison.takes]
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO comparisons (id, made_at, text, language, seed, is_blind, takes)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    comparison.id,
                    comparison.made_at.isoformat(),
                    comparison.text,
                    comparison.language,
                    str(comparison.seed),
                    int(comparison.is_blind),
                    json.dumps(takes),
                ),
            )

    def get(self, comparison_id: str) -> Comparison:
        """One comparison with its current vote. Raises ComparisonError."""
        with self._database.reading() as connection:
            return _get(connection, comparison_id)

    def vote(self, comparison_id: str, verdict: Verdict) -> Comparison:
        """Store a vote, which is final.

        Raises:
            ComparisonError: there is no such comparison or side, or it already has a vote.
        """
        with self._database.transaction() as connection:
            comparison = _get(connection, comparison_id)
            if comparison.verdict is not None:
                raise ComparisonError("You have already voted on this comparison. Compare again to vote again.")
            if verdict in LETTERS and verdict not in {take.letter for take in comparison.takes}:
                raise ComparisonError(f"This comparison has no side {verdict}. Choose one of its sides.")
            connection.execute(
                "UPDATE comparisons SET verdict = ?, voted_at = ? WHERE id = ?",
                (verdict, datetime.now(UTC).isoformat(), comparison_id),
            )
            return _get(connection, comparison_id)

    def score(self, comparison_id: str, scores: Mapping[Letter, TakeScores]) -> Comparison:
        """Store what was measured of the takes. Raises ComparisonError if there is no such comparison."""
        with self._database.transaction() as connection:
            takes = _get(connection, comparison_id).takes
            scored = [take.model_copy(update={"scores": scores.get(take.letter, take.scores)}) for take in takes]
            connection.execute(
                "UPDATE comparisons SET takes = ? WHERE id = ?",
                (json.dumps([take.model_dump(mode="json") for take in scored]), comparison_id),
            )
            return _get(connection, comparison_id)

    def list_voted(self) -> tuple[Comparison, ...]:
        """All that were voted on, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM comparisons WHERE verdict IS NOT NULL ORDER BY voted_at"
            ).fetchall()
        return tuple(understood(rows, _from_row))

    def tallies(self, keys: Sequence[str]) -> tuple[Tally, ...]:
        """The votes between each pair of these sides."""
        voted = self.list_voted()
        pairs = [(first, second) for index, first in enumerate(keys) for second in keys[index + 1 :]]
        return tuple(tally(voted, first, second) for first, second in pairs)


def _get(connection: sqlite3.Connection, comparison_id: str) -> Comparison:
    row = connection.execute("SELECT * FROM comparisons WHERE id = ?", (comparison_id,)).fetchone()
    if row is None:
        raise ComparisonError("This comparison no longer exists. Compare again.")
    return _from_row(row)


def _from_row(row: sqlite3.Row) -> Comparison:
    with understanding(f"the comparison {row['id']}"):
        return Comparison.model_validate({**dict(row), "seed": int(row["seed"]), "takes": json.loads(row["takes"])})
