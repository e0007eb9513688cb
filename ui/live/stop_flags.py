"""Stop buttons: a flag per browser tab that a take under way looks at before every frame."""

from __future__ import annotations

import threading


class StopFlags:
    """One flag for each session that speaks or waits for its turn."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def begin(self, session: str) -> None:
        """Start afresh: what was stopped before stays stopped, what comes now is not."""
        with self._lock:
            self._flags[session] = threading.Event()

    def current(self, session: str) -> threading.Event:
        """The flag of what the session has begun."""
        with self._lock:
            return self._flags.setdefault(session, threading.Event())

    def stop(self, session: str) -> None:
        """Stop what the session has begun, if anything."""
        with self._lock:
            flag = self._flags.get(session)
        if flag is not None:
            flag.set()

    def end(self, session: str, flag: threading.Event) -> None:
        """Forget a finished one, unless the session has begun another since."""
        with self._lock:
            if self._flags.get(session) is flag:
                del self._flags[session]
