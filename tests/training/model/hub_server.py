"""A hub on this machine: the few endpoints a download uses, with faults to order."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE_FILE_BYTES = 1000
"""From here on a file has a SHA-256 and comes from another host, as on the real hub; below, git's SHA-1."""


def git_digest(content: bytes) -> str:
    """What git calls this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Hub:
    """One repository and how it behaves.

    `requests` records what was asked as (method, path, Range header), `authorizations` what token came with it.
    """

    repo: str
    files: dict[str, bytes]
    served_instead: dict[str, bytes] = field(default_factory=dict)
    claimed_bytes: dict[str, int] = field(default_factory=dict)
    stall_after_bytes: int | None = None
    ignores_ranges: bool = False
    file_error: tuple[int, str] | None = None
    info_error: tuple[int, str] | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    authorizations: list[tuple[str, str | None]] = field(default_factory=list)
    resumed: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def entry(self, name: str) -> dict[str, Any]:
        """What the hub says about a file."""
        content = self.files[name]
        size = self.claimed_bytes.get(name, len(content))
        found: dict[str, Any] = {"size": size, "oid": git_digest(content), "blobId": git_digest(content)}
        if len(content) >= LARGE_FILE_BYTES:
            sha256 = hashlib.sha256(content).hexdigest()
            found["lfs"] = {"oid": sha256, "sha256": sha256, "size": size, "pointerSize": 134}
            found["xetHash"] = hashlib.sha256(sha256.encode()).hexdigest()
        return found

    def downloads(self) -> list[tuple[str, str | None]]:
        """The files asked for, with the ranges, in order."""
        pattern = re.compile(rf"/{re.escape(self.repo)}/resolve/[^/]+/(.+)")
        found = [(pattern.fullmatch(path), byte_range) for method, path, byte_range in self.requests if method == "GET"]
        return [(unquote(match[1]), byte_range) for match, byte_range in found if match]

    def run(self) -> ThreadingHTTPServer:
        """Start answering on a free port; `url` says where."""
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        self.hub.authorizations.append((path, self.headers.get("Authorization")))
        if path.startswith("/cdn/"):
            self._send_file(unquote(path.removeprefix("/cdn/")), with_body=with_body)
            return
        api = f"/api/models/{self.hub.repo}"
        if path == api or path.startswith((f"{api}/revision/", f"{api}/tree/")):
            if self.hub.info_error:
                self._fail(*self.hub.info_error)
            elif path.startswith(f"{api}/revision/") and path.rpartition("/")[2] not in ("main", COMMIT):
                self._fail(404, "RevisionNotFound")
            elif path.startswith(f"{api}/tree/"):
                self._send_json([{"type": "file", "path": name, **self.hub.entry(name)} for name in self.hub.files])
            else:
                siblings = [{"rfilename": name, **self.hub.entry(name)} for name in self.hub.files]
                self._send_json({"id": self.hub.repo, "modelId": self.hub.repo, "sha": COMMIT, "siblings": siblings})
        elif path.startswith(f"/{self.hub.repo}/resolve/{COMMIT}/"):
            name = unquote(path.split(f"/resolve/{COMMIT}/")[1])
            if self.hub.file_error:
                self._fail(*self.hub.file_error)
            elif name not in self.hub.files:
                self._fail(404, "EntryNotFound")
            elif "lfs" in self.hub.entry(name):
                self._redirect(name)
            else:
                self._send_file(name, with_body=with_body)
        else:
            self._fail(404, "RepoNotFound")

    def _fail(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_json(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _redirect(self, name: str) -> None:
        """Send the client to the same server under another name, which to it is another host."""
        entry = self.hub.entry(name)
        self.send_response(302)
        self.send_header("Location", self.hub.url.replace("127.0.0.1", "localhost") + f"/cdn/{name}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-ETag", f'"{entry["lfs"]["sha256"]}"')
        self.send_header("X-Linked-Size", str(entry["size"]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_file(self, name: str, *, with_body: bool) -> None:
        content = self.hub.served_instead.get(name, self.hub.files[name])
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted and not self.hub.ignores_ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{self.hub.entry(name)["oid"]}"')
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if not with_body:
            return
        limit = self.hub.stall_after_bytes
        if limit is None or start >= limit or len(content) < limit:
            self.wfile.write(content[start:])
            return
        self.wfile.write(content[start:limit])
        self.wfile.flush()
        self.hub.resumed.wait()
