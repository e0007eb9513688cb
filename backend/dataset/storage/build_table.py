"""How builds are doing, in the database: written by the process that builds, read by all others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from backend.dataset.clips.stage_counts import STAGES, StageCount
from backend.dataset.clips.views import BuildProgress, BuildState, StageProgress
from backend.dataset.errors import DatasetNotFound
from backend.dataset.storage.lock import is_locked
from backend.store.home import Home

_INTERRUPTED = "The build stopped unexpectedly: the computer or the process was shut down. Build again to resume."


class BuildTable:
    """State, heartbeat and counts of the last build of each dataset."""

    def __init__(self, home: Home) -> None:
        self._database = home.database
        self._home = home.folder

    def begin(self, name: str) -> None:
        """A build begins; the caller holds the lock."""
        now = time.time()
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM dataset_stages WHERE dataset = ?", (name,))
            connection.execute(
                "INSERT OR REPLACE INTO dataset_builds (dataset, state, process_id, started_at, heartbeat_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (name, BuildState.RUNNING, os.getpid(), now, now),
            )

    def beat(self, name: str, counts: Iterable[StageCount]) -> bool:
        """Write the counts and the heartbeat. Returns whether the build was asked to stop."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE dataset_builds SET heartbeat_at = ?, process_id = ? WHERE dataset = ?",
                (time.time(), os.getpid(), name),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO dataset_stages (dataset, stage, num_done, num_reused, num_failed, num_total, "
                "audio_seconds, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        name,
                        count.stage,
                        count.num_done,
                        count.count("reused"),
                        count.count("failed"),
                        count.num_total,
                        count.audio_seconds,
                        count.started_at,
                    )
                    for count in counts
                ],
            )
            row = connection.execute(
                "SELECT cancel_requested FROM dataset_builds WHERE dataset = ?", (name,)
            ).fetchone()
            return row is not None and bool(row["cancel_requested"])

    def note(self, name: str, notice: str) -> None:
        """Show something about the build that is worth knowing; replaces the notice before."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE dataset_builds SET notice = ? WHERE dataset = ?", (notice, name))

    def request_cancel(self, name: str) -> None:
        """Ask the running build to stop after the rows that it is working on."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE dataset_builds SET cancel_requested = 1 WHERE dataset = ? AND state = ?",
                (name, BuildState.RUNNING),
            )

    def finish(self, name: str, state: BuildState, problem: str = "") -> None:
        """The build has ended."""
        now = time.time()
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE dataset_builds SET state = ?, problem = ?, finished_at = ?, heartbeat_at = ? WHERE dataset = ?",
                (state, problem, now, now, name),
            )

    def progress(self, name: str) -> BuildProgress:
        """How the last build is doing; one whose process is gone is marked as interrupted.

        Raises:
            DatasetNotFound: no build of this name was ever begun.
        """
        found = self._read(name)
        if found.is_running and not is_locked(self._home, name):
            # It may have finished between the two checks.
            found = self._read(name)
            if found.is_running:
                self.finish(name, BuildState.INTERRUPTED, _INTERRUPTED)
                found = self._read(name)
        return found

    def _read(self, name: str) -> BuildProgress:
        with self._database.reading() as connection:
            build = connection.execute("SELECT * FROM dataset_builds WHERE dataset = ?", (name,)).fetchone()
            rows = connection.execute("SELECT * FROM dataset_stages WHERE dataset = ?", (name,)).fetchall()
        if build is None:
            raise DatasetNotFound(f"There is no dataset {name!r}. Build one with `app.py dataset build`.")
        by_stage = {row["stage"]: row for row in rows}
        now = time.time() if build["state"] == BuildState.RUNNING else build["heartbeat_at"]
        stages = tuple(
            StageProgress(
                stage=stage,
                num_done=row["num_done"],
                num_reused=row["num_reused"],
                num_failed=row["num_failed"],
                num_total=row["num_total"],
                audio_seconds=row["audio_seconds"],
                seconds_left=_seconds_left(
                    row["num_done"], row["num_reused"], row["num_total"], row["started_at"], now
                ),
            )
            for stage in STAGES
            if (row := by_stage.get(stage)) is not None
        )
        return BuildProgress(
            name=name,
            state=BuildState(build["state"]),
            problem=build["problem"],
            notice=build["notice"],
            stages=stages,
            process_id=build["process_id"],
            started_at=build["started_at"],
            heartbeat_at=build["heartbeat_at"],
            finished_at=build["finished_at"],
        )


def _seconds_left(done: int, reused: int, total: int | None, started_at: float | None, now: float) -> float | None:
    """Estimated from the rows that were worked on; reused ones say nothing about the rate."""
    if total is None:
        return None
    if done >= total:
        return 0.0
    if started_at is None or done <= reused:
        return None
    return max(0.0, now - started_at) * (total - done) / (done - reused)
