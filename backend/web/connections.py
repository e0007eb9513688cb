"""The servers' connections: how many an address may have, and how long it may take to say what it wants.

uvicorn waits for the rest of a request for ever, as long as the connection stands; a few hundred halves would keep
everybody else out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from typing import Any, ClassVar

from uvicorn import config as uvicorn_config
from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_SECONDS = 15.0
"""For all headers of a request, from its first byte on; also for the first byte of a new connection."""

MAX_HEADER_BYTES = 64 * 1024
"""Of a request whose headers have not ended; what arrives at once with their begin or end is not counted."""

BODY_GRACE_SECONDS = 20.0
"""What a body may take on top of its size at the slowest rate: a phone between two cells."""

MIN_BYTES_PER_SECOND = 2048
"""Of a body, on average: a tenth of a slow mobile connection. Five minutes of speech as FLAC may take three hours."""

MAX_CONNECTIONS = 256
"""Open ones of one address; a browser opens six."""

LOOK_SECONDS = 1.0

_LONG = b"The request's headers are too long. Send fewer or shorter ones."
_SLOW = b"The request took too long to arrive. Send it again, faster."
_MANY = b"Too many connections of your address are open. Close some of them first."


class BoundedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # which of two it is, is found at run time
    """uvicorn's HTTP protocol with deadlines and a bound of connections."""

    _num_by_address: ClassVar[Counter[tuple[int, str]]] = Counter()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count it, and answer 503 at once where there are too many of its address."""
        super().connection_made(transport)
        # By server too: tests run several in one process.
        self._owner = (id(self.server_state), self.client[0] if self.client else "")
        self._num_by_address[self._owner] += 1
        self._is_waiting, self._has_begun, self._since, self._num_bytes = True, False, time.monotonic(), 0
        self._is_header, self._num_header_bytes = False, 0
        if self._num_by_address[self._owner] > MAX_CONNECTIONS and not self._is_proxy():
            self._refuse(b"503 Service Unavailable", _MANY)
            self.transport.close()
            return
        self._look = self.loop.call_later(LOOK_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._num_by_address[self._owner] -= 1
        if self._num_by_address[self._owner] <= 0:
            del self._num_by_address[self._owner]
        if (look := getattr(self, "_look", None)) is not None:
            look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Note that something has come."""
        if self.transport.is_closing():
            return
        if self._is_idle and not self._is_waiting:
            # The first byte of the next request on a connection that is kept.
            self._is_waiting, self._since = True, time.monotonic()
        was_header, was_body, self._has_begun = self._is_header, self._is_body, True
        super().data_received(data)
        if self._is_body:
            if not was_body:
                self._since, self._num_bytes = time.monotonic(), 0
            self._num_bytes += len(data)
        if self._is_body or not self._is_idle:
            self._is_waiting = False
        if was_header and self._is_header:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
                if self._is_idle:
                    self._refuse(b"431 Request Header Fields Too Large", _LONG)
                self.transport.close()

    def on_message_begin(self) -> None:
        """Headers begin; only httptools says so, and h11 bounds them itself."""
        self._is_header, self._num_header_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Headers have ended."""
        self._is_header = False
        super().on_headers_complete()

    def _should_upgrade_to_ws(self) -> bool:
        """Nothing here speaks WebSocket, whose connections would not be looked after."""
        return False

    @property
    def _is_idle(self) -> bool:
        """Whether no request is under way whose headers are all there."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _is_body(self) -> bool:
        return not self._is_idle and bool(self.cycle.more_body)

    def _is_proxy(self) -> bool:
        """Whether the address stands for many clients, and may have as many connections as it likes."""
        given = self.config.forwarded_allow_ips
        names = given.split(",") if isinstance(given, str) else given
        try:
            address = ipaddress.ip_address(self._owner[1])
        except ValueError:  # a socket of another kind
            return False
        return any(address in ipaddress.ip_network(name.strip(), strict=False) for name in names if name.strip())

    def _check(self) -> None:
        if self.transport.is_closing():
            return
        seconds = time.monotonic() - self._since
        if self._is_body:
            # What the application does not read yet cannot come.
            if self.flow.read_paused:
                self._since += LOOK_SECONDS
            is_late = seconds > BODY_GRACE_SECONDS + self._num_bytes / MIN_BYTES_PER_SECOND
        else:
            is_late = self._is_idle and self._is_waiting and seconds > HEADER_SECONDS
        if is_late:
            self._break_off()
        else:
            self._look = self.loop.call_later(LOOK_SECONDS, self._check)

    def _break_off(self) -> None:
        cycle: Any = self.cycle
        # After an answer, another one would be taken for that of the next request.
        if self._has_begun if cycle is None else not (cycle.response_started or cycle.response_complete):
            self._refuse(b"408 Request Timeout", _SLOW)
        if cycle is not None and not cycle.response_complete:
            # The application hears that whoever asked is gone, and answers no more.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _refuse(self, status: bytes, said: bytes) -> None:
        head = b"HTTP/1.1 %s\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n"
        self.transport.write(head % (status, len(said)) + b"\r\n" + said)


def bound_connections() -> None:
    """Make servers that others configure, Gradio and Ray Serve, use this protocol; in this process, from now on."""
    uvicorn_config.HTTP_PROTOCOLS["auto"] = f"{BoundedProtocol.__module__}:{BoundedProtocol.__name__}"
