"""The losses of runs as the page has read them: only what is new is read again, however long a run is."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from backend.runs.runs import Runs
from backend.runs.storage.records import MetricRecord, RunRecord

_MAX_RUNS = 20


class LossHistory:
    """Remembers what steps reported, for all sessions of the page."""

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}
        self._metrics: dict[str, list[MetricRecord]] = {}
        self._lock = threading.Lock()

    def read(self, runs: Runs, run: RunRecord) -> Sequence[MetricRecord]:
        """All steps of a run in order. Raises RunNotFound."""
        with self._lock:
            known = self._metrics.get(run.id, [])
            # A run that was resumed may have gone back to an earlier step.
            if self._attempts.get(run.id) != run.attempt or (known and known[-1].step > run.step):
                known = []
            known = [*known, *runs.metrics(run.id, known[-1].step if known else 0)]
            self._metrics.pop(run.id, None)
            self._metrics[run.id], self._attempts[run.id] = known, run.attempt
            for oldest in list(self._metrics)[:-_MAX_RUNS]:
                del self._metrics[oldest], self._attempts[oldest]
            return known
