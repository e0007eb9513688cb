"""Whether anything answers where a Ray cluster is said to be, found out at once: Ray itself tries for minutes."""

from __future__ import annotations

import socket

_MAX_KNOCKING_SECONDS = 10.0


def answers(address: str) -> bool:
    """Knock at an address of the form host:port, with or without ray://; of other forms only Ray knows, so yes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdecimal()):
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), _MAX_KNOCKING_SECONDS).close()
    except (OSError, OverflowError):
        return False
    return True
