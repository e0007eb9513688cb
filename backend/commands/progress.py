"""The progress display of all commands: a bar on a terminal; elsewhere a few lines, or nothing."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self, TextIO

from tqdm import tqdm

QUIET_SECONDS = 2.0
"""What takes less time than this shows no bar."""


class Progress:
    """One bar that is drawn over and over, and cleared at the end."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        unit: str = "it",
        delay_seconds: float = QUIET_SECONDS,
        num_lines: int = 0,
    ) -> None:
        """Show nothing yet.

        Args:
            stream: where to; standard error when None.
            unit: of what is counted; bytes ("B") are shown as kB, MB and so on.
            delay_seconds: how long to show no bar.
            num_lines: how many lines to print at most for each stage where the stream is not a terminal.
        """
        self._stream = sys.stderr if stream is None else stream
        self._unit, self._delay_seconds, self._num_lines = unit, delay_seconds, num_lines
        self._bar: Any = None  # tqdm has no types
        self._printed: object = None

    def show(
        self,
        what: str,
        done: float = 0,
        total: float | None = None,
        *,
        line: str = "",
        stage: str = "",
    ) -> None:
        """Say how far it has come.

        Args:
            what: is being done.
            done: of `total`, in the display's unit.
            total: as far as it is known.
            line: printed where there is no terminal; made of the others when empty.
            stage: a change of it is always printed.
        """
        if not self._stream.isatty():
            share = int(self._num_lines * done / total) if total else 0
            if self._num_lines and (stage, share) != self._printed:
                self._printed = stage, share
                print(line or f"{what}: {done:g} of {total or '?'}", file=self._stream, flush=True)
            return
        if self._bar is None:
            self._bar = tqdm(
                desc=what,
                initial=done,
                total=total,
                file=self._stream,
                unit=self._unit,
                unit_scale=self._unit == "B",
                delay=self._delay_seconds,
                leave=False,
                dynamic_ncols=True,
                miniters=0,
            )
        self._bar.total = total
        self._bar.set_description_str(what, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Clear the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def describe_seconds(seconds: float) -> str:
    """A rough duration: in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
