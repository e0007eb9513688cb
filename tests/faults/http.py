"""What every answer over HTTP is held to, from the API and from the studio."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.faults.attack import Outcome, Result, TooLong, last_of, leaked, within
from tests.faults.world import Served, World
from tests.ui.raw_http import Reply, connect, read_reply

FOREIGN_HOSTS = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "169.254.169.254", "a.local", "0")
MALFORMED = ("[", "a b", "::1", "localhost:x", "localhost:99999", "a/b", "x@y", "é")
FOREIGN_ORIGINS = ("https://evil.example", "http://localhost.evil.example", "null", "file://", "http://a:b:c", "[")
OTHER_PORTS = ("http://localhost:1", "http://127.0.0.1")
"""Pages of other programs on this machine, which the API lets in and the studio does not."""
ANSWER_SECONDS = 60.0
MAX_SHOWN = 300


def asked(
    what: str,
    ask: Callable[[], Reply],
    world: World,
    *,
    expected: tuple[int, ...] = (),
    is_bad: Callable[[Reply], str] = lambda reply: "",
    own: tuple[str, ...] = (),
) -> Outcome:
    """Send one request, and hold its answer to what all answers are held to.

    Args:
        what: the request in words.
        ask: sends it.
        world: whose secrets it must not tell.
        expected: the only statuses that are right; any but a fault of the server's if there are none.
        is_bad: says what else is wrong about the answer, or nothing.
        own: what the request itself says; an answer may repeat it.
    """
    try:
        with within(ANSWER_SECONDS):
            reply = ask()
    except TooLong as error:
        return Outcome(result=Result.WRONG, what=f"{what}: no answer, {error}")
    except (OSError, AssertionError) as error:
        return Outcome(result=Result.WRONG, what=f"{what}: {last_of(error)}")
    text = reply.body.decode(errors="replace")
    for one in own:
        text = text.replace(one, "")
    headers = " ".join(f"{name}: {value}" for name, value in reply.headers)
    problem = leaked(text, world) or leaked(headers, world) or is_bad(reply)
    if not problem and expected and reply.status not in expected:
        problem = f"status {reply.status} instead of {' or '.join(map(str, expected))}"
    if not problem and reply.status >= 500 and not _explains_itself(reply):
        problem = f"a bare {reply.status}"
    if problem:
        return Outcome(result=Result.WRONG, what=f"{what}: {problem}: {text[:MAX_SHOWN]!r}")
    return Outcome(result=Result.REFUSED if reply.status >= 400 else Result.RECOVERED, what=what)


def _explains_itself(reply: Reply) -> bool:
    """A 5xx that says what happened; `internal_error` is how the API says that it met something unforeseen."""
    try:
        content = json.loads(_unchunked(reply))
    except ValueError:
        return False
    if not isinstance(content, dict):
        return False
    if content.get("detail"):
        return True
    error = content.get("error")
    return isinstance(error, dict) and bool(error.get("message")) and error.get("code") != "internal_error"


def _unchunked(reply: Reply) -> bytes:
    return reply.body if reply.header("transfer-encoding") != "chunked" else reply.body.partition(b"\r\n")[2]


def send_raw(served: Served, content: bytes) -> Reply:
    """Send just these bytes and read until the server closes; an answer before a reset is lost."""
    with connect(served.address) as connection:
        try:
            connection.sendall(content)
            return read_reply(connection)
        except ConnectionError:
            return Reply(431, [], b"")


def complaints(what: str, served: Served) -> Iterator[Outcome]:
    """An outcome if the server has ended, or has met something unforeseen meanwhile."""
    if served.process.poll() is not None:
        yield Outcome(result=Result.WRONG, what=f"{what}: the server ended with {served.process.returncode}")
    log = served.new_log()
    if "Traceback (most recent call last)" in log:
        yield Outcome(result=Result.WRONG, what=f"{what}: in the log: {log[-600:]!r}")
