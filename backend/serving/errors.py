"""What can go wrong between asking for a take and hearing it, apart from the request itself."""

from __future__ import annotations

from typing import Any

from backend.errors import EncoreError


class ServingError(EncoreError):
    """The request is in order, but it cannot be served now."""


class EngineBusy(ServingError):
    """More is waiting than is accepted; worth another try after `retry_after_seconds`."""

    def __init__(self, what: str, *, retry_after_seconds: float) -> None:
        self.what, self.retry_after_seconds = what, retry_after_seconds
        super().__init__(f"{what} Try again in {max(1, round(retry_after_seconds))} s.")

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes by pickle, which would call the constructor with the message.
        return _busy_again, (type(self), self.what, self.retry_after_seconds)


class EngineClosed(ServingError):
    """The engine was shut down before the take was over."""

    def __init__(self, message: str = "The speech engine has been shut down. Start it, or ask again.") -> None:
        super().__init__(message)


class TakeFailed(ServingError):
    """A take ended by a fault of ours; the log has the details."""

    def __init__(self, message: str = "Speaking failed because of a fault in Encore. The log has the details.") -> None:
        super().__init__(message)


def _busy_again(kind: type[EngineBusy], what: str, retry_after_seconds: float) -> EngineBusy:
    return kind(what, retry_after_seconds=retry_after_seconds)
