"""What a process that reads untrusted bytes gives up before it does."""

from __future__ import annotations

import resource
import signal
import sys

from backend.audio.limits import DecodingLimits

# An orphan (the app was killed) ends itself this long after the app would have ended it.
_ORPHAN_GRACE_SECONDS = 5.0


def confine(limits: DecodingLimits, max_output_bytes: int) -> None:
    """Limit this process for good; called when everything it needs is imported and open."""
    if sys.platform == "linux":
        # On other systems the address space says nothing about memory in use; the other limits have to suffice.
        lower_limit(resource.RLIMIT_AS, address_space_bytes() + limits.memory_bytes)
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_FSIZE, max_output_bytes)
    # The soft limit ends it with SIGXCPU, which the app can distinguish from a kill for lack of memory.
    lower_limit(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    # From here on no file, socket or library can be opened, whatever a parser is talked into.
    lower_limit(resource.RLIMIT_NOFILE, 0)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds + _ORPHAN_GRACE_SECONDS)


def lower_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit of this process for good; where it is lower already it stays."""
    _, current = resource.getrlimit(kind)
    most = sys.maxsize if current == resource.RLIM_INFINITY else current
    resource.setrlimit(kind, (min(soft, most), min(soft if hard is None else hard, most)))


def address_space_bytes() -> int:
    """What this process has mapped until now; Linux only."""
    with open("/proc/self/statm", encoding="ascii") as status:
        return int(status.read().split()[0]) * resource.getpagesize()
