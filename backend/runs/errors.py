"""What can go wrong with fine-tunes, in words for the person."""

from __future__ import annotations

from training.model.errors import EncoreError


class RunError(EncoreError):
    """A fine-tune cannot be started, found or steered."""


class RunInvalid(RunError):
    """What was asked for cannot be trained: found out before any worker starts."""


class RunNotFound(RunError):
    """There is no run of that id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"There is no run {run_id!r}. `runs list` shows those there are.")


class RunStateInvalid(RunError):
    """What was asked for does not fit what the run is doing."""
