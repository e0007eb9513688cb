"""The rows of the database that runs are kept in: what may change to what, and nothing of Ray or files."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from backend.evaluation.scores import CheckpointScores, EvaluatedTake
from backend.runs.errors import RunNotFound
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.runs.storage.states import RunState, check_transition
from backend.store.database import Database
from backend.store.rows import understanding, understood

Measures = Mapping[str, float]


class RunTable:
    """Reads and writes the rows; knows what a state may become, and nothing of Ray or files."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: RunRecord) -> None:
        """Record a new run."""
        row = record.as_row()
        names = ", ".join(row)
        marks = ", ".join(f":{name}" for name in row)
        with self._database.transaction() as connection:
            connection.execute(f"INSERT INTO runs ({names}) VALUES ({marks})", row)

    def get(self, run_id: str) -> RunRecord:
        """One run. Raises RunNotFound."""
        with self._database.reading() as connection:
            return _get(connection, run_id)

    def list(self) -> list[RunRecord]:
        """All runs, the newest first."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM runs ORDER BY created_at DESC, id DESC").fetchall()
        return understood(rows, _record)

    def move(self, run_id: str, state: RunState, message: str = "", **fields: object) -> RunRecord:
        """Change a run's state, and other columns with it, in one transaction.

        Raises:
            RunNotFound, RunStateInvalid: there is no such run, or it cannot become that.
        """
        now = time.time()
        changes = {"state": str(state), "message": message, **fields}
        if not state.is_active:
            changes |= {"ended_at": now, "process_id": None, "process_started_at": None}
        with self._database.transaction() as connection:
            check_transition(run_id, _get(connection, run_id).state, state)
            _update(connection, run_id, changes)
            return _get(connection, run_id)

    def queue_again(self, run_id: str, message: str) -> None:
        """Give an active run that was interrupted its next attempt; to others it is active all the time.

        Raises:
            RunNotFound, RunStateInvalid: there is no such run, or it has ended.
        """
        with self._database.transaction() as connection:
            check_transition(run_id, _get(connection, run_id).state, RunState.INTERRUPTED)
            _update(connection, run_id, {"state": str(RunState.QUEUED), "message": message})

    def claim(self, run_id: str, *, alone: bool, has_owner: Callable[[RunRecord], bool]) -> bool:
        """Let a queued run begin its next attempt; false while another one has to end first.

        Args:
            run_id: the run whose turn it may be.
            alone: whether it shares the machine with no other run.
            has_owner: whether a living process sees a run through; others block no queue.

        Raises:
            RunNotFound, RunStateInvalid: it is not there, or not queued any more.
        """
        with self._database.transaction() as connection:
            mine = _get(connection, run_id)
            check_transition(run_id, mine.state, RunState.STARTING)
            busy = connection.execute(
                "SELECT * FROM runs WHERE id != ? AND (state IN ('starting', 'running', 'evaluating') "
                "OR state = 'queued' AND (created_at, id) < (?, ?))",
                (run_id, mine.created_at, run_id),
            )
            if alone and any(has_owner(run) for run in understood(busy, _record)):
                return False
            now = time.time()
            changes = {
                "state": str(RunState.STARTING),
                "message": "Starting workers.",
                "attempt": mine.attempt + 1,
                "started_at": mine.started_at or now,
                "ended_at": None,
                "heartbeat_at": now,
            }
            _update(connection, run_id, changes)
            return True

    def change(self, run_id: str, **fields: object) -> None:
        """Change columns other than the state."""
        assert "state" not in fields, "states are changed by move()"
        with self._database.transaction() as connection:
            _update(connection, run_id, fields)

    def add_metrics(self, run_id: str, attempt: int, measures_by_step: Mapping[int, Measures]) -> None:
        """Record steps; one that was trained before, until a fault, is replaced."""
        if not measures_by_step:
            return
        rows = [(run_id, step, attempt, json.dumps(dict(m))) for step, m in sorted(measures_by_step.items())]
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO run_metrics VALUES (?, ?, ?, ?)", rows)
            _update(connection, run_id, {"step": rows[-1][1]})

    def forget_steps_after(self, run_id: str, step: int) -> None:
        """Drop what was trained after the checkpoint that training goes on from: it will be trained again."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM run_metrics WHERE run_id = ? AND step > ?", (run_id, step))
            _update(connection, run_id, {"step": step})

    def metrics(self, run_id: str, after_step: int = 0) -> Sequence[MetricRecord]:
        """What the steps after `after_step` reported, in order. Raises RunNotFound."""
        with self._database.reading() as connection:
            _get(connection, run_id)
            rows = connection.execute(
                "SELECT * FROM run_metrics WHERE run_id = ? AND step > ? ORDER BY step", (run_id, after_step)
            ).fetchall()
        return [
            MetricRecord(step=row["step"], attempt=row["attempt"], measures=json.loads(row["measures"])) for row in rows
        ]

    def add_checkpoint(self, run_id: str, name: str, step: int) -> None:
        """Record a checkpoint, to be evaluated; nothing changes if it is there already."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO run_checkpoints (run_id, name, step, saved_at, state) VALUES (?, ?, ?, ?, ?)",
                (run_id, name, step, time.time(), "waiting"),
            )

    def mark_evaluating(self, run_id: str, name: str, *, waiting: bool = False) -> None:
        """Record that a checkpoint is being evaluated, or waits to be again."""
        state = "waiting" if waiting else "evaluating"
        self._change_checkpoint(run_id, name, {"state": state, "problem": ""})

    def add_evaluation(self, run_id: str, name: str, takes: Sequence[EvaluatedTake], scores: CheckpointScores) -> None:
        """Record how a checkpoint sounds."""
        rows = [(run_id, name, take.position, take.model_dump_json()) for take in takes]
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM run_takes WHERE run_id = ? AND checkpoint = ?", (run_id, name))
            connection.executemany("INSERT INTO run_takes VALUES (?, ?, ?, ?)", rows)
            connection.execute(
                "UPDATE run_checkpoints SET state = 'evaluated', problem = '', scores = ?"
                " WHERE run_id = ? AND name = ?",
                (scores.model_dump_json(), run_id, name),
            )

    def fail_evaluation(self, run_id: str, name: str, problem: str) -> None:
        """Record why a checkpoint could not be evaluated."""
        self._change_checkpoint(run_id, name, {"state": "failed", "problem": problem})

    def checkpoints(self, run_id: str) -> Sequence[CheckpointRecord]:
        """The base model and the checkpoints, in the order of their steps. Raises RunNotFound."""
        with self._database.reading() as connection:
            _get(connection, run_id)
            rows = connection.execute(
                "SELECT * FROM run_checkpoints WHERE run_id = ? ORDER BY step, name", (run_id,)
            ).fetchall()
            takes = connection.execute(
                "SELECT checkpoint, take FROM run_takes WHERE run_id = ? ORDER BY position", (run_id,)
            ).fetchall()
        by_checkpoint: dict[str, list[EvaluatedTake]] = {}
        for row in takes:
            by_checkpoint.setdefault(row["checkpoint"], []).append(EvaluatedTake.model_validate_json(row["take"]))
        return [_checkpoint(row, by_checkpoint.get(row["name"], [])) for row in rows]

    def add_event(self, run_id: str, sentence: str) -> None:
        """Record something that happened."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO run_events (run_id, at, sentence) VALUES (?, ?, ?)", (run_id, time.time(), sentence)
            )

    def events(self, run_id: str) -> Sequence[EventRecord]:
        """What happened, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT at, sentence FROM run_events WHERE run_id = ? ORDER BY id", (run_id,)
            ).fetchall()
        return [EventRecord(**row) for row in rows]

    def _change_checkpoint(self, run_id: str, name: str, fields: Mapping[str, object]) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                f"UPDATE run_checkpoints SET {_assignments(fields)} WHERE run_id = :run_id AND name = :name",
                {**fields, "run_id": run_id, "name": name},
            )


def _get(connection: sqlite3.Connection, run_id: str) -> RunRecord:
    row = connection.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunNotFound(run_id)
    return _record(row)


def _record(row: sqlite3.Row) -> RunRecord:
    with understanding(f"the fine-tune {row['id']}"):
        return RunRecord(**row)


def _update(connection: sqlite3.Connection, run_id: str, fields: Mapping[str, object]) -> None:
    connection.execute(f"UPDATE runs SET {_assignments(fields)} WHERE id = :id", {**fields, "id": run_id})


def _assignments(names: Iterable[str]) -> str:
    return ", ".join(f"{name} = :{name}" for name in names)


def _checkpoint(row: sqlite3.Row, takes: Iterable[EvaluatedTake]) -> CheckpointRecord:
    scores = CheckpointScores.model_validate_json(row["scores"]) if row["scores"] else None
    return CheckpointRecord(
        name=row["name"],
        step=row["step"],
        saved_at=row["saved_at"],
        state=row["state"],
        problem=row["problem"],
        scores=scores,
        takes=tuple(takes),
    )
