"""Serves Whisper weights on this machine, as slowly and as badly as a test wants."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT = bytes(range(256)) * 20_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class WeightsServer(ThreadingHTTPServer):
    """Serves CONTENT below any path; `max_bytes` breaks connections off, `content` replaces what is served.

    What comes after `pause_after` bytes waits until `may_go_on` is set.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.max_bytes = len(CONTENT)
        self.pause_after = len(CONTENT)
        self.may_go_on = threading.Event()
        self.ranges: list[str | None] = []

    def address(self) -> dict[str, str]:
        return {"base": f"http://127.0.0.1:{self.server_port}/models/{DIGEST}/base.pt"}


class Handler(BaseHTTPRequestHandler):
    server: WeightsServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        rest = self.server.content[begin:]
        if begin and not rest:
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        sent = rest[: self.server.max_bytes]
        # Whoever has cancelled is gone.
        with suppress(ConnectionError):
            self.wfile.write(sent[: self.server.pause_after])
            if later := sent[self.server.pause_after :]:
                self.server.may_go_on.wait()
                self.wfile.write(later)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serve_weights() -> Iterator[WeightsServer]:
    """Serve until the block ends."""
    with WeightsServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.may_go_on.set()
            server.shutdown()
            thread.join()
