"""Which process a working file or a run belongs to: told from every other process, whatever the clock is set to."""

from __future__ import annotations

import os
import re
import secrets
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TEMPORARY_PREFIX = "encore-work."
"""Of folders that `temporary_folder` made."""

_BOOT_DIGITS = 8
TAG_PATTERN = r"[\w-]+\.\d+(?:-[0-9a-z]+)?"
"""Tags as they stand in names of working files; earlier versions left the birth out."""

_WORKING_NAME = re.compile(rf"(?:^|\.)({TAG_PATTERN})\.\w{{8}}(?:\.\w+)?$")
# Nothing takes a day to write.
_ABANDONED_AFTER_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Owner:
    """A process of any machine, living or not.

    Attributes:
        host: name of its machine.
        process_id: its number, which other processes get in time.
        birth: the machine's boot and the start of the process in ticks since then; None where it is not known.
    """

    host: str
    process_id: int
    birth: str | None

    @classmethod
    def this_process(cls) -> Self:
        """The process that asks."""
        return cls(host=_host(), process_id=os.getpid(), birth=birth_of(os.getpid()))

    @classmethod
    def parse(cls, tag: str) -> Self | None:
        """The owner of a tag; None if it is none."""
        if not re.fullmatch(TAG_PATTERN, tag):
            return None
        host, _, process = tag.rpartition(".")
        number, _, birth = process.partition("-")
        return cls(host=host, process_id=int(number), birth=birth or None)

    @property
    def tag(self) -> str:
        """As part of a file's name."""
        return f"{self.host}.{self.process_id}" + (f"-{self.birth}" if self.birth else "")

    @property
    def is_of_this_boot(self) -> bool:
        """Whether it ran on this machine since it was switched on; also where its birth is not known."""
        is_of_boot = self.birth is None or self.birth[:_BOOT_DIGITS] == _boot()
        return self.host == _host() and is_of_boot

    def is_alive(self) -> bool:
        """Whether it still runs, for one of this machine; a zombie does not."""
        if not self.is_of_this_boot:
            return False
        born = birth_of(self.process_id)
        return born is not None and (self.birth is None or born == self.birth)


def working_name(suffix: str = "") -> str:
    """A name for a file or folder that this process is filling, by which `is_abandoned` knows it."""
    return f"{Owner.this_process().tag}.{secrets.token_hex(4)}{suffix}"


def temporary_folder(parent: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """A folder for a moment, by default where the system keeps such, which `is_abandoned` knows after a kill."""
    return tempfile.TemporaryDirectory(prefix=f"{TEMPORARY_PREFIX}{Owner.this_process().tag}.", dir=parent)


def is_abandoned(path: Path) -> bool:
    """Whether nobody will finish a working file or folder any more: the one rule for all that is swept.

    Its name tells its owner, who is gone where no such process lives on this machine. Whether one on another machine
    lives cannot be told, nor whose a file of an earlier version is: those are abandoned after a day without a change.
    """
    named = _WORKING_NAME.search(path.name)
    owner = Owner.parse(named[1]) if named else None
    if owner is not None and owner.host == _host():
        return not owner.is_alive()
    try:
        return abs(time.time() - path.stat().st_mtime) > _ABANDONED_AFTER_SECONDS
    except FileNotFoundError:
        return False


def birth_of(process_id: int) -> str | None:
    """Boot of the machine and start of a process in ticks since then; None for a process that has ended.

    Unlike the time of its start, neither changes when the clock is set.
    """
    try:
        # The name, in brackets, may hold anything; behind it are the state and then numbers (proc(5)).
        state, *numbers = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return _birth_without_proc(process_id) if not Path("/proc/self/stat").exists() else None
    return None if state in "ZX" else f"{_boot()}{int(numbers[18]):x}"


def _birth_without_proc(process_id: int) -> str | None:
    """On systems without /proc, of which macOS keeps the time of a start as it was."""
    import psutil  # noqa: PLC0415 - not needed on Linux

    try:
        process = psutil.Process(process_id)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{_boot()}{int(process.create_time()):x}"
    except psutil.Error:
        return None


def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")
    except OSError:
        boot = ""
    return boot[:_BOOT_DIGITS].ljust(_BOOT_DIGITS, "0")


def _host() -> str:
    return re.sub(r"[^\w-]", "_", socket.gethostname())
