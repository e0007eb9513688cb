"""The desk of a run: what workers read and write of the run's folder, also from machines that do not see it."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

from backend.runs.storage.control import Control, LineWriter
from backend.runs.storage.run_folder import RunFolder
from training.disk_room import ROOM_SECONDS

_FULL = (errno.ENOSPC, errno.EDQUOT)
_POLL_SECONDS = 1.0


class Desk(Protocol):
    """One attempt's desk as a worker sees it."""

    machine: str
    """The worker's, where it is not that of the run's folder; otherwise empty."""

    def control(self) -> Control:
        """What workers obey now."""
        ...

    def write(self, line: Mapping[str, Any]) -> None:
        """Append to what the run's steps report. Raises OSError."""
        ...

    def record_problem(self, problem: str) -> None:
        """Write down what every further attempt would meet as well."""
        ...


class FolderDesk(Desk):
    """Beside the run's folder. Also what runs in the actor that `RemoteDesk` asks."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        """Of one attempt; its file of lines is made by the first of them."""
        self.machine = ""
        self.folder, self._attempt = folder, attempt
        self._lines: LineWriter | None = None

    @override
    def control(self) -> Control:
        return Control.read(self.folder.control)

    @override
    def write(self, line: Mapping[str, Any]) -> None:
        self._lines = self._lines or LineWriter(self.folder.metrics, self._attempt)
        self._lines.write(line)

    @override
    def record_problem(self, problem: str) -> None:
        if self.control().attempt == self._attempt:
            # On a full disk the file stays empty, which means the same.
            with suppress(OSError):
                self.folder.problem.write_text(problem, encoding="utf-8")


class DeskActor:
    """Made into an actor on the machine of the run's folder."""

    def __init__(self, folder: str, attempt: int) -> None:
        self._folder, self._attempt = RunFolder(Path(folder)), attempt
        self._desk = FolderDesk(self._folder, attempt)

    def control(self) -> dict[str, Any]:
        """See `Desk.control`."""
        return self._desk.control().model_dump()

    def begin(self) -> None:
        """Begin another file of lines: workers have started anew."""
        self._desk = FolderDesk(self._folder, self._attempt)

    def write(self, line: dict[str, Any]) -> int:
        """See `Desk.write`; returns the number of the system's error, 0 without one."""
        try:
            self._desk.write(line)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def record_problem(self, problem: str) -> None:
        """See `Desk.record_problem`."""
        self._desk.record_problem(problem)


class RemoteDesk(Desk):
    """On another machine than the run's folder; asks the actor there."""

    def __init__(self, actor: Any) -> None:  # a handle of Ray's
        self.machine = socket.gethostname()
        self._actor = actor

    def begin(self) -> None:
        """See `DeskActor.begin`."""
        self._ask(self._actor.begin.remote())

    @override
    def control(self) -> Control:
        return Control.model_validate(self._ask(self._actor.control.remote()))

    @override
    def write(self, line: Mapping[str, Any]) -> None:
        """As in the folder; where its disk is full, it is waited for here, and told of by the supervisor there."""
        give_up_at = time.monotonic() + ROOM_SECONDS
        while number := int(self._ask(self._actor.write.remote(dict(line)))):
            if number not in _FULL or time.monotonic() > give_up_at:
                raise OSError(number, os.strerror(number))
            time.sleep(_POLL_SECONDS)

    @override
    def record_problem(self, problem: str) -> None:
        self._ask(self._actor.record_problem.remote(problem))

    def _ask(self, reference: Any) -> Any:  # whatever the actor returns
        import ray  # noqa: PLC0415 - only where a worker runs under it

        return ray.get(reference)
