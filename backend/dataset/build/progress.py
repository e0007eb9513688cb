"""Counting what each stage has done, on whatever machine its workers are, and asking them to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from backend.cluster.connect import pin_to_this_machine
from backend.dataset.clips.stage_counts import STAGES, Outcome, Stage, StageCount

# The stage whose rows produce those of the key: a total is final once the stage before has finished.
_PREVIOUS_STAGE: dict[Stage, Stage] = {"transcribe": "decode", "tokenize": "cut"}


class StageCounts:
    """Counts of all stages, and whether the build was cancelled."""

    def __init__(self) -> None:
        self._counts = {stage: StageCount(stage=stage) for stage in STAGES}
        self._announced: dict[Stage, dict[str, frozenset[str]]] = {stage: {} for stage in STAGES}
        self._is_cancelled = False
        self._fault = ""

    def add(self, stage: Stage, row: str, outcome: Outcome, audio_seconds: float = 0.0) -> bool:
        """Count a row as done. Returns whether to continue."""
        count = self._counts[stage]
        if row not in count.outcomes:
            count.outcomes[row] = outcome
            if outcome == "worked":
                count.audio_seconds += audio_seconds
        return not self._is_cancelled

    def begin(self, stage: Stage) -> bool:
        """Note when the first row of a stage begins. Returns whether to continue."""
        count = self._counts[stage]
        count.started_at = count.started_at or time.time()
        return not self._is_cancelled

    def expect(self, stage: Stage, num_rows: int) -> None:
        """Set how many rows a stage will have."""
        self._counts[stage].num_total = num_rows

    def announce(self, stage: Stage, source: str, rows: frozenset[str]) -> None:
        """Note the rows of `stage` that come from one row of the stage before."""
        self._announced[stage][source] = rows
        before = self._counts[_PREVIOUS_STAGE[stage]]
        if before.num_total is not None and len(before.outcomes) >= before.num_total:
            self._counts[stage].num_total = len(frozenset().union(*self._announced[stage].values()))

    def cancel(self) -> None:
        """Ask every worker to stop."""
        self._is_cancelled = True

    def stop_for(self, fault: str) -> None:
        """Ask every worker to stop, because of something that all of them would meet."""
        self._fault = self._fault or fault
        self.cancel()

    def fault(self) -> str:
        """What the workers were stopped for; empty if it was nothing of that kind."""
        return self._fault

    def all(self) -> list[StageCount]:
        """The counts so far."""
        return list(self._counts.values())


class _ActorProxy:
    """An object that lives in a Ray actor; each method call waits for the actor's answer. Can be pickled."""

    def __init__(self, kind: type[object]) -> None:
        import ray  # noqa: PLC0415 - takes a second, which a build in one process need not wait for

        # No core of its own: it answers in microseconds, and with two cores none is to spare. On this machine, which
        # the build cannot lose.
        pinned = ray.remote(num_cpus=0, scheduling_strategy=pin_to_this_machine(strictly=True))(kind)
        self._actor: Any = pinned.remote()  # Any: Ray's handles do not know their class

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)  # what pickle looks for before there is an actor
        import ray  # noqa: PLC0415 - as above

        return lambda *arguments: ray.get(getattr(self._actor, name).remote(*arguments))


def shared_counts() -> StageCounts:
    """Counts for a build on the Ray that is connected: all workers share them."""
    return cast(StageCounts, _ActorProxy(StageCounts))
