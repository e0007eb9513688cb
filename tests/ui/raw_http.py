"""Requests that no well-behaved client sends, over a socket of their own."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

PATIENCE_SECONDS = 60.0


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for given, value in self.headers if given == name.lower()), None)

    def cookies(self) -> list[str]:
        return [value for name, value in self.headers if name == "set-cookie"]


def connect(address: str) -> socket.socket:
    """A connection to the server at http://host:port/."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), PATIENCE_SECONDS)


def head_of(method: str, path: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Everything before the body."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode()


def request(address: str, path: str, *, method: str = "GET", body: bytes = b"", **headers: str | None) -> Reply:
    """Send one request with just these headers; Host is the address's own unless it is given, None leaves it out."""
    given = {"Host": urlsplit(address).netloc, "Connection": "close"}
    given |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    if body:
        given.setdefault("Content-Length", str(len(body)))
    with connect(address) as connection:
        connection.sendall(head_of(method, path, [(name, value) for name, value in given.items() if value is not None]))
        # Whoever refuses a request need not wait for its body.
        with suppress(ConnectionError):
            connection.sendall(body)
        return read_reply(connection)


def read_reply(connection: socket.socket) -> Reply:
    """Everything until the server closes."""
    content = b""
    with suppress(ConnectionError):
        while chunk := connection.recv(65536):
            content += chunk
    assert content, "closed without a word"
    head, _, body = content.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in rest)]
    return Reply(int(first.split()[1]), headers, body)
