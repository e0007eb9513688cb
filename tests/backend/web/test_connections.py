"""Clients that do not say what they want: a real server in a second process, and sockets that are slow on purpose."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.ui.app_process import free_port
from tests.ui.raw_http import connect, head_of, read_reply, request
from training.model.project import PROJECT_FOLDER

# With shorter deadlines than the product's, in the same proportions.
HEADER_SECONDS, GRACE_SECONDS, MIN_RATE, MAX_CONNECTIONS = 2.0, 3.0, 1000, 20

SERVER = textwrap.dedent("""
    import sys
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route
    from backend.web import connections

    connections.HEADER_SECONDS, connections.BODY_GRACE_SECONDS = float(sys.argv[2]), float(sys.argv[3])
    connections.MIN_BYTES_PER_SECOND, connections.MAX_CONNECTIONS = int(sys.argv[4]), int(sys.argv[5])
    connections.LOOK_SECONDS = 0.2
    if sys.argv[6] == "h11":
        from uvicorn.protocols.http.h11_impl import H11Protocol
        connections.BoundedProtocol.__bases__ = (H11Protocol,)

    async def echo(request):
        return PlainTextResponse(str(len(await request.body())))

    class Told(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print("ready", flush=True)

    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])
    options = {"http": connections.BoundedProtocol, "log_level": "warning", "forwarded_allow_ips": []}
    config = uvicorn.Config(app, port=int(sys.argv[1]), **options)
    Told(config).run()
""")


@pytest.fixture(scope="module", params=["httptools", "h11"])
def server(request) -> Iterator[str]:
    port = free_port()
    options = [port, HEADER_SECONDS, GRACE_SECONDS, MIN_RATE, MAX_CONNECTIONS, request.param]
    command = [sys.executable, "-c", SERVER, *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT_FOLDER, encoding="utf-8") as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.kill()


def drip(connection, content: bytes, *, pause: float, num_bytes: int = 1) -> None:
    """Send a little at a time until all is sent or the other side has had enough."""
    for start in range(0, len(content), num_bytes):
        try:
            connection.sendall(content[start : start + num_bytes])
        except OSError:
            return
        time.sleep(pause)


def test_headers_that_trickle_are_cut_off(server):
    with connect(server) as connection:
        began = time.monotonic()
        drip(connection, b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 30, pause=0.3)
        assert read_reply(connection).status == 408
        assert time.monotonic() - began > HEADER_SECONDS


def test_headers_without_end_are_not_gathered(server):
    """They filled the memory for as long as they had time to arrive."""
    piece, num_sent = b"x" * 50_000, 0
    with connect(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: ")
        # What is sent after the refusal is answered with a reset.
        with suppress(ConnectionError):
            while num_sent < 100 * len(piece):
                connection.sendall(piece)
                num_sent += len(piece)
                connection.settimeout(0.05)
                with suppress(TimeoutError):
                    assert connection.recv(1000).split()[1] in (b"400", b"431")
                    return
        assert num_sent < 100 * len(piece), "five megabytes were taken"


def test_a_body_that_was_answered_before_it_had_arrived_is_no_header(server):
    content = b"x" * 3_000_000
    with connect(server) as connection:
        headers = [("Host", "a"), ("Connection", "keep-alive"), ("Content-Length", str(len(content)))]
        # PUT is refused by the router, which reads no body.
        connection.sendall(head_of("PUT", "/", headers) + content[:10])
        time.sleep(0.3)
        connection.sendall(content[10:] + head_of("GET", "/", [("Host", "a"), ("Connection", "close")]))
        answers = connection.makefile("rb").read()
    assert next(line.split()[1] for line in answers.splitlines() if line.startswith(b"HTTP/1.1")) == b"405"
    assert b"431" not in answers


def test_a_silent_connection_is_closed(server):
    with connect(server) as connection:
        assert connection.recv(100) == b""


def test_a_body_that_trickles_is_cut_off(server):
    with connect(server) as connection:
        connection.sendall(head_of("POST", "/", [("Host", "a"), ("Content-Length", "1000")]))
        drip(connection, b"x" * 40, pause=0.3)
        assert read_reply(connection).status == 408


def test_a_body_that_is_slow_and_honest_arrives(server):
    """For longer than the grace, at somewhat more than the slowest rate."""
    content = b"x" * 16_000
    with connect(server) as connection:
        headers = [("Host", "a"), ("Connection", "close"), ("Content-Length", str(len(content)))]
        connection.sendall(head_of("POST", "/", headers))
        began = time.monotonic()
        drip(connection, content, pause=0.5, num_bytes=1500)
        assert time.monotonic() - began > GRACE_SECONDS
        reply = read_reply(connection)
    assert (reply.status, reply.body) == (200, b"16000")


def test_the_second_request_of_a_connection_has_the_same_deadlines(server):
    with connect(server) as connection:
        for _ in range(2):
            connection.sendall(head_of("GET", "/", [("Host", "a")]))
            answer = b""
            while not answer.endswith(b"\r\n\r\n0"):
                answer += connection.recv(1000)
            time.sleep(HEADER_SECONDS)
        drip(connection, b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 30, pause=0.3)
        assert connection.recv(1000) == b""


def test_an_address_has_so_many_connections_and_gets_new_ones_for_those_it_closes(server):
    held = [connect(server) for _ in range(MAX_CONNECTIONS)]
    try:
        with connect(server) as late:
            reply = read_reply(late)
        assert reply.status == 503
        assert b"Too many connections" in reply.body
    finally:
        for connection in held:
            connection.close()
    deadline = time.monotonic() + 60
    while request(server, "/").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_hundreds_of_half_sent_requests_do_not_block_others(server):
    """As it was found: a byte every now and then held each of them open for ever."""
    halves = []
    for _ in range(5):
        for _ in range(MAX_CONNECTIONS - 2):
            halves.append(connect(server))
            halves[-1].sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Le")
        deadline = time.monotonic() + 60
        while halves:
            assert time.monotonic() < deadline, f"{len(halves)} are still open"
            for half in tuple(halves):
                half.settimeout(0.05)
                try:
                    half.sendall(b"n")
                    if half.recv(1000):
                        continue
                except TimeoutError:
                    continue
                except OSError:
                    pass
                half.close()
                halves.remove(half)
        assert request(server, "/").status == 200
