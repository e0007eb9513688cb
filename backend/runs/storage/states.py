"""What a run can be doing, and what may follow what."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from backend.runs.errors import RunStateInvalid


class RunState(StrEnum):
    """What a run is doing, or how it ended."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    EVALUATING = "evaluating"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def is_active(self) -> bool:
        """Whether a supervisor is, or should be, running it."""
        return self in ACTIVE

    @property
    def can_resume(self) -> bool:
        """Whether it can go on from its last checkpoint."""
        return self in RESUMABLE


ACTIVE = frozenset({RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.EVALUATING})
RESUMABLE = frozenset({RunState.PAUSED, RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED})

STOPPED: Mapping[str, tuple[RunState, str]] = MappingProxyType(
    {
        "cancel": (RunState.CANCELLED, "Cancelled. Its last checkpoint is kept; resuming continues from there."),
        "pause": (RunState.PAUSED, "Paused. Resuming continues from the last checkpoint."),
        "interrupt": (
            RunState.INTERRUPTED,
            "Interrupted: its process was asked to end. Resuming continues from the last checkpoint.",
        ),
    }
)
"""What a run becomes that was asked to stop, with the sentence for it."""

_ENDS = frozenset({RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED})
TRANSITIONS: Mapping[RunState, frozenset[RunState]] = MappingProxyType(
    {
        RunState.QUEUED: _ENDS | {RunState.STARTING, RunState.PAUSED},
        RunState.STARTING: _ENDS | {RunState.RUNNING, RunState.PAUSED},
        RunState.RUNNING: _ENDS | {RunState.EVALUATING, RunState.PAUSED},
        # An evaluation that is resumed needs no training, so it can be paused and interrupted like training itself.
        RunState.EVALUATING: _ENDS | {RunState.DONE, RunState.PAUSED},
        RunState.PAUSED: frozenset({RunState.QUEUED, RunState.CANCELLED}),
        RunState.FAILED: frozenset({RunState.QUEUED}),
        RunState.CANCELLED: frozenset({RunState.QUEUED}),
        RunState.INTERRUPTED: frozenset({RunState.QUEUED, RunState.CANCELLED}),
        RunState.DONE: frozenset(),
    }
)


def check_transition(run_id: str, before: RunState, after: RunState) -> None:
    """Refuse what cannot follow. Raises RunStateInvalid."""
    if after not in TRANSITIONS[before]:
        raise RunStateInvalid(f"Run {run_id} is {before}, so it cannot become {after}. `runs show {run_id}` says more.")
