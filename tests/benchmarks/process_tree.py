"""Processor time and memory of this process with everything it has started, such as Ray and its workers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import psutil

_LOOK_SECONDS = 0.25


def tree() -> Iterator[psutil.Process]:
    """This process and all its descendants."""
    own = psutil.Process()
    yield own
    yield from own.children(recursive=True)


class ProcessorTime:
    """Processor time that the tree takes while a block lasts, with that of Ray's workers, which nobody waits for.

    What a process did in its last moments, since it was last looked at, is missing.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], float] = {}
        self._before: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def seconds(self) -> float:
        """So far, or of the whole block when it is over."""
        return sum(taken - self._before.get(process, 0.0) for process, taken in list(self._seen.items()))

    def __enter__(self) -> Self:
        self._look()
        self._before = dict(self._seen)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for process in tree():
            with contextlib.suppress(psutil.Error):  # it has just ended
                # Those that decode are waited for, and counted with whoever does.
                if not any("decoder_process" in word for word in process.cmdline()):
                    self._seen[process.pid, process.create_time()] = sum(process.cpu_times()[:4])


class PeakMemory:
    """The most memory that the workers and this process have for themselves while a block lasts, in MiB."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process().pid
        while not self._ended.wait(_LOOK_SECONDS):
            # Ray's own processes keep journals that say nothing about the work.
            sizes = _of_each(lambda process: process.memory_full_info().uss if _is_at_work(process, own) else 0.0)
            self.peak_mib = max(self.peak_mib, sum(sizes) / 2**20)


def _is_at_work(process: psutil.Process, own: int) -> bool:
    title = " ".join(process.cmdline()[:1])
    return process.pid == own or (title.startswith("ray::") and "IDLE" not in title)


def _of_each(measure: Callable[[psutil.Process], float]) -> list[float]:
    sizes = []
    for process in tree():
        with contextlib.suppress(psutil.Error):  # it has just ended
            sizes.append(measure(process))
    return sizes
