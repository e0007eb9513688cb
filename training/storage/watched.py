"""A small object that others write and many read: known by its tag, and asked for at most every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from training.errors import StorageUnreachable
from training.storage.objects import ObjectStore

FRESH_SECONDS = 3.0
"""How old what is known may be; a question costs the storage a request, whoever asks."""

HOLD_SECONDS = 30.0
"""How long a storage that did not answer is left alone, where something is known: who asks waits for each attempt."""


class WatchedObject:
    """The newest content of an object; where the storage does not answer, the last that is known."""

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        *,
        fresh_seconds: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._name, self._fresh_seconds, self._clock = store, name, fresh_seconds, clock
        self._lock = threading.Lock()
        self._ask_at: float | None = None
        self._tag: str | None = None
        self._content: bytes | None = None

    def read(self) -> bytes | None:
        """What the object held a few seconds ago at most; None if it is not there.

        Raises:
            StorageError: it cannot be read, and never was.
        """
        with self._lock:
            now = self._clock()
            if self._ask_at is None or now >= self._ask_at:
                self._ask()
            return self._content

    def _ask(self) -> None:
        try:
            found = self._store.read_if_changed(self._name, self._tag)
        except StorageUnreachable:
            if self._ask_at is None:
                raise
            self._ask_at = self._clock() + HOLD_SECONDS
            return
        self._ask_at = self._clock() + self._fresh_seconds
        if found is None:
            self._tag = self._content = None
        elif found.tag != self._tag:
            self._tag, self._content = found.tag, found.content
