"""What can go wrong between asking for a take and hearing it, apart from the request itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from backend.errors import EncoreError
from training.errors import StorageError


class ServingError(EncoreError):
    """The request is in order, but it cannot be served now."""


class EngineBusy(ServingError):
    """More is waiting than is accepted; worth another try after `retry_after_seconds`."""

    def __init__(self, what: str, *, retry_after_seconds: float) -> None:
        self.what, self.retry_after_seconds = what, retry_after_seconds
        super().__init__(f"{what} Try again in {max(1, round(retry_after_seconds))} s.")


class EngineClosed(ServingError):
    """The engine was shut down before the take was over."""

    def __init__(self, message: str = "The speech engine has been shut down. Start it, or ask again.") -> None:
        super().__init__(message)


class HomeUnavailable(ServingError):
    """The process that keeps voices, takes and keys does not answer."""

    def __init__(self, message: str = "What is stored cannot be reached at the moment. Ask again.") -> None:
        super().__init__(message)


class TakeFailed(ServingError):
    """A take ended by a fault of ours; the log has the details."""

    def __init__(self, message: str = "Speaking failed because of a fault in Encore. The log has the details.") -> None:
        super().__init__(message)


@contextmanager
def naming_machine() -> Iterator[None]:
    """For a block on a machine of a cluster: what is wrong with the storage there is read at another one."""
    try:
        yield
    except StorageError as error:
        raise type(error)(f"{error} This was on the machine {socket.gethostname()}.") from error
