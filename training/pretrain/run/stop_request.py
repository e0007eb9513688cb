"""Asking a training loop politely to stop."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """Turns the first polite signal (SIGTERM, Ctrl-C) into a request that a loop answers when its state is whole."""

    def __init__(self) -> None:
        self.was_asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.was_asked = True
