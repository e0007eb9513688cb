"""Where processes can be reached from."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import psutil


def listening_sockets(processes: Iterable[psutil.Process]) -> list[tuple[str, str]]:
    """Program and address of every socket that they listen on."""
    found = []
    for process in processes:
        if process.status() != psutil.STATUS_ZOMBIE:
            for connection in process.net_connections("inet"):
                if connection.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and connection.laddr:
                    found.append((process.name(), connection.laddr.ip))
    return found


def is_loopback(text: str) -> bool:
    """Whether only this machine reaches an address, in either notation."""
    address = ipaddress.ip_address(text)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
