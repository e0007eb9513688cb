"""Clients that never finish what they begin: closed within the deadlines, and nobody waits for them."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

from backend.web.connections import BODY_GRACE_SECONDS, HEADER_SECONDS, MIN_BYTES_PER_SECOND
from tests.faults.api_requests import honest
from tests.faults.attack import Attack, Outcome, Result
from tests.faults.http import complaints
from tests.faults.world import Served, World
from tests.ui.raw_http import connect, head_of

NUM_CLIENTS = 24
SLACK_SECONDS = 20.0
"""For a machine that does much else."""
DRIP_SECONDS = 1.0


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """A crowd of one kind, which drips while an honest client is served."""
    served = world.server(locked=False)
    name = rng.choice(tuple(BEGINNINGS))
    beginning = BEGINNINGS[name](served)
    # What has been sent buys time.
    seconds = (
        HEADER_SECONDS if name in ("silent", "headers") else BODY_GRACE_SECONDS + len(beginning) / MIN_BYTES_PER_SECOND
    )
    what = f"{NUM_CLIENTS} clients, {name}"
    crowd = [connect(served.address) for _ in range(NUM_CLIENTS)]
    try:
        for one in crowd:
            one.sendall(beginning)
            one.setblocking(False)
        began = time.monotonic()
        yield honest(served, world)
        open_ones = list(crowd)
        while open_ones and time.monotonic() - began < seconds + SLACK_SECONDS:
            open_ones = [one for one in open_ones if _is_open(one, is_silent=name == "silent")]
            time.sleep(DRIP_SECONDS)
        if open_ones:
            yield Outcome(result=Result.WRONG, what=f"{what}: {len(open_ones)} are open after {seconds:.0f} s")
        else:
            yield Outcome(result=Result.REFUSED, what=what)
    finally:
        for one in crowd:
            one.close()
    yield honest(served, world)
    yield from complaints(what, served)


def _is_open(one: socket.socket, *, is_silent: bool) -> bool:
    try:
        if not is_silent:
            one.send(b"x")
        while content := one.recv(4096):
            if b" 408 " in content[:20]:
                return False
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _head(served: Served, length: int) -> bytes:
    headers = [("Host", served.netloc), ("Content-Type", "application/json"), ("Content-Length", str(length))]
    return head_of("POST", "/v1/audio/speech", headers)


BEGINNINGS = {
    "silent": lambda served: b"",
    "headers": lambda served: _head(served, 100)[:-4] + b"\r\nX-Long: ",
    "body": lambda served: _head(served, 100_000) + b'{"input": "',
    "large body": lambda served: _head(served, 50_000_000) + b'{"input": "' + b"a" * 100_000,
}

ATTACK = Attack(name="slow clients", weight=1.0, attack=step)
