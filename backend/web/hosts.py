"""Under which names the servers are reached: one list for the studio and the API.

A web page from elsewhere can send requests to this machine, also under a name of its own that leads here (DNS
rebinding). A browser tells both: the name it asked for in `Host`, the page that asks in `Origin`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import NamedTuple

_AUTHORITY = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([\w-]+(?:\.[\w-]+)*)\.?)(?::(\d{1,5}))?", re.ASCII)
_ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://(.+)")
_DEFAULT_PORTS = (80, 443)
_WILDCARDS = ("0.0.0.0", "::", "")


class Authority(NamedTuple):
    """A host and a port; None for the port of the scheme."""

    name: str
    port: int | None

    @property
    def is_address(self) -> bool:
        """Whether the name is an IP address, under which no page of another site can be found."""
        return _as_address(self.name) is not None

    @property
    def is_loopback(self) -> bool:
        """Whether the name leads to this machine wherever it is asked for."""
        address = _as_address(self.name)
        if address is not None:
            return address.is_loopback
        return self.name == "localhost" or self.name.endswith(".localhost")


class AllowedHosts:
    """Names under which a server is reached; may be asked and added to from any thread."""

    def __init__(self, host: str, names: Iterable[str] = ()) -> None:
        """Allow loopback names, what the server listens on, and `names`, each with a port or without.

        Raises:
            ValueError: one of the names is none; the message is that name.
        """
        self._is_wildcard = host in _WILDCARDS
        own = [f"[{host}]" if ":" in host else host]
        if self._is_wildcard:
            own = [machine := socket.gethostname(), f"{machine.partition('.')[0]}.local"]
        # A machine may be called something that no Host header can say.
        self._own = frozenset(filter(None, map(parse_authority, own)))
        self._named: frozenset[Authority] = frozenset()
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Allow one more name. Raises ValueError."""
        authority = parse_authority(name)
        if authority is None:
            raise ValueError(name)
        self._named |= {authority}

    def serves(self, host: Authority) -> bool:
        """Whether a request that asks for this host is answered."""
        if host.is_loopback or (self._is_wildcard and host.is_address):
            return True
        return not {host, Authority(host.name, None)}.isdisjoint(self._own | self._named)

    def is_own(self, origin: Authority, host: Authority) -> bool:
        """Whether a page of this origin is one of this server's, reached as `host`; proxies may rename that."""
        return origin == host or origin in self._named


def parse_authority(text: str) -> Authority | None:
    """Host and port of a `Host` header, in lower case; None if it is malformed."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or len(text) > 255:
        return None
    address, name, port = match.groups()
    if address is not None and _as_address(address) is None:
        return None
    number = int(port) if port else None
    if number is not None and not 0 < number < 65536:
        return None
    return Authority((address or name).lower(), None if number in _DEFAULT_PORTS else number)


def parse_origin(text: str) -> Authority | None:
    """The same of an `Origin` header other than "null"."""
    match = _ORIGIN.fullmatch(text)
    return parse_authority(match.group(1)) if match else None


def _as_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
