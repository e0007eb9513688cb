"""Two hundred requests over real HTTP whose clients leave at random moments: nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn

from backend.serving.api.dependencies import ApiContext
from backend.serving.api.factory import create_api
from backend.serving.deploy.local_server import LocalSpeech
from tests.backend.serving.api.served import DEADLINE_SECONDS, MODEL, ask, wait_until

NUM_REQUESTS, NUM_CLIENTS = 200, 8
BOUNDARY = "encore"


@dataclass
class Served:
    """A server in a thread of its own."""

    service: LocalSpeech
    server: uvicorn.Server
    address: tuple[str, int]
    loop: asyncio.AbstractEventLoop | None = None
    tasks_before: set[object] = field(default_factory=set)

    def tasks(self) -> set[object]:
        """What runs in the server's loop."""
        assert self.loop is not None

        async def ask_loop() -> set[object]:
            return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

        return asyncio.run_coroutine_threadsafe(ask_loop(), self.loop).result(DEADLINE_SECONDS)


@pytest.fixture
def uploads(tmp_path, monkeypatch) -> Path:
    """Where this process puts files for the time of a request."""
    folder = tmp_path / "uploads"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def served(synthesizer, voices, uploads, takes) -> Iterator[Served]:
    service = LocalSpeech(synthesizer, max_requests=NUM_CLIENTS)
    app = create_api(ApiContext(service=service, voices=voices, model_name=MODEL, takes=takes))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        made = Served(service=service, server=server, address=listener.getsockname())

        async def serve() -> None:
            made.loop = asyncio.get_running_loop()
            await server.serve(sockets=[listener])

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        wait_until(lambda: server.started, "the server listens")
        try:
            yield made
        finally:
            server.should_exit = True
            thread.join(DEADLINE_SECONDS)


def request_of(moments: random.Random, recording: bytes) -> bytes:
    """One of the ways to ask, as bytes on the wire."""
    way = moments.choice(("stream", "stream", "whole", "sse", "compare", "one-off"))
    fields = ask(seed=moments.randrange(100), response_format=moments.choice(("pcm", "wav", "mp3")))
    path, kind = "/v1/audio/speech", "application/json"
    if way == "one-off":
        del fields["voice"]
        form = {**fields, "consent": "own-voice", "consent_by": "Anna"}
        parts = [
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in form.items()
        ]
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="ref_audio"; filename="a.wav"\r\n\r\n'.encode()
        body = b"".join(parts) + head + recording + f"\r\n--{BOUNDARY}--\r\n".encode()
        kind = f"multipart/form-data; boundary={BOUNDARY}"
    elif way == "compare":
        path = "/v1/compare"
        body = json.dumps({"voices": ["Anna", "Tuned"], "input": "Hi.", "seed": fields["seed"]}).encode()
    else:
        body = json.dumps(
            {**fields, "stream": way != "whole", "stream_format": "sse" if way == "sse" else "audio"}
        ).encode()
    heads = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return heads.encode() + body


def leave_at_random(address: tuple[str, int], number: int, recording: bytes) -> str:
    """Ask, and leave while asking, while waiting or while listening; or hear it all."""
    moments = random.Random(number)
    request = request_of(moments, recording)
    with socket.create_connection(address, DEADLINE_SECONDS) as client:
        if moments.random() < 0.2:
            client.sendall(request[: moments.randrange(len(request))])
            return "while asking"
        client.sendall(request)
        bytes_wanted = moments.choice((0, 1, 200, 3_000, 20_000, 10**9))
        while bytes_wanted > 0:
            heard = client.recv(min(4096, bytes_wanted))
            bytes_wanted -= len(heard)
            # A kept connection does not end by itself: whoever hears little for a while has all of it.
            if not heard or heard.endswith((b"0\r\n\r\n", b"}")):
                return "at the end"
    return "in the middle"


def test_a_disconnect_frees_everything_the_request_held(served, synthesizer, recording, uploads, takes):
    def is_quiet() -> bool:
        numbers = synthesizer.statistics().values()
        return served.service.num_requests == 0 and not any(one.num_active or one.num_waiting for one in numbers)

    sound = recording.read_bytes()
    # The first loads the fine-tuned voice and opens what stays open for good.
    for number in range(6):
        leave_at_random(served.address, 1000 + number, sound)
    wait_until(is_quiet, "the engines are idle")
    wait_until(lambda: len(served.tasks()) <= 2, "the server only listens")
    tasks_before, files_before = len(served.tasks()), num_open_files()
    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        moments = Counter(
            clients.map(lambda number: leave_at_random(served.address, number, sound), range(NUM_REQUESTS))
        )
    assert min(moments[when] for when in ("while asking", "in the middle", "at the end")) > 5, moments
    wait_until(is_quiet, "no request and no slot is left")
    wait_until(lambda: len(served.tasks()) <= tasks_before, "no task is left")
    wait_until(lambda: list(uploads.iterdir()) == [], "no file is left")
    wait_until(lambda: list((takes.folder / "incoming").iterdir()) == [], "no half take is left")
    assert 1 <= len(takes.list()) <= takes.bounds.max_takes
    wait_until(lambda: num_open_files() <= files_before + NUM_CLIENTS, "no connection is left")
    assert sum(numbers.num_failed_total for numbers in synthesizer.statistics().values()) == 0


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
