"""An S3 server on this machine (moto), and a proxy before it that is slow, refuses, and cuts connections."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

BUCKET = "encore"
KEY = "right-key"
_START_SECONDS = 60.0


@contextlib.contextmanager
def object_server() -> Iterator[int]:
    """The port of a server that keeps objects in its memory, with one bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                _request(port, "PUT", f"/{BUCKET}")
                break
            except OSError:
                assert process.poll() is None, "moto's server ended: pip install 'moto[server,s3]'"
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield port
    finally:
        # It has nothing to put in order, and would wait for connections that are kept open.
        process.kill()
        process.wait(timeout=10)


def variables(port: int, key: str = KEY) -> dict[str, str | None]:
    """The environment by which a program finds the server; None are those that must not be set."""
    return {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_ENDPOINT_URL_S3": None,
        "AWS_PROFILE": None,
        "AWS_SESSION_TOKEN": None,
    }


@dataclass
class Fault:
    """What happens to the next requests of a kind.

    Attributes:
        kind: answered with 503, cut in the middle of a body, answered late, or with another byte in it.
        method: of the requests; all when empty.
        part: of the path.
        times: how many of them.
        seconds: how late.
    """

    kind: Literal["busy", "cut", "slow", "spoilt"]
    method: str = ""
    part: str = ""
    times: int = 1
    seconds: float = 0.0


class FaultProxy:
    """Passes requests on to a server, but for what a test wants to go wrong; knows one right access key."""

    def __init__(self, port: int) -> None:
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self._target = port
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def sent(self, method: str, part: str = "") -> list[str]:
        """Paths of the requests so far."""
        return [path for one, path in self.requests if one == method and part in path]

    def take_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, path))
            for fault in self.faults:
                if fault.times and fault.method in ("", method) and fault.part in path:
                    fault.times -= 1
                    return fault
        return None

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        return _request(self._target, method, path, headers, body)


def _request(
    port: int, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self._body()
            fault = proxy.take_fault(self.command, self.path)
            if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
                return self._answer(403, _error("InvalidAccessKeyId"))
            kind = fault.kind if fault is not None else ""
            if kind == "busy":
                return self._answer(503, _error("SlowDown"))
            if kind == "cut" and self.command == "PUT":
                return self._cut()
            if fault is not None and kind == "slow":
                time.sleep(fault.seconds)
            status, headers, content = proxy.forward(self.command, self.path, self._passed_on(), body)
            if kind == "spoilt" and content:
                content = bytes([content[0] ^ 1]) + content[1:]
            return self._answer(status, content, headers, cuts=kind == "cut")

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def _passed_on(self) -> dict[str, str]:
            # The body was read whole.
            dropped = ("transfer-encoding", "expect", "connection")
            return {name: value for name, value in self.headers.items() if name.lower() not in dropped}

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(chunks)

        def _answer(
            self, status: int, content: bytes, headers: dict[str, str] | None = None, *, cuts: bool = False
        ) -> None:
            headers = headers or {"Content-Type": "application/xml"}
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            is_head = self.command == "HEAD"
            length = headers.get("Content-Length", "0") if is_head else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            if cuts:
                self.wfile.write(content[: len(content) // 2])
                return self._cut()
            if not is_head:
                self.wfile.write(content)
            return None

        def _cut(self) -> None:
            self.wfile.flush()
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: object) -> None:
            return

    return Handler


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
