"""Requests to the studio: other names, other sites' pages, strangers, guesses, and files that are not its own."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from tests.faults.attack import Attack, LeftOut, Outcome, Result
from tests.faults.damage import HOSTILE_VALUES
from tests.faults.http import FOREIGN_HOSTS, FOREIGN_ORIGINS, MALFORMED, OTHER_PORTS, asked, complaints
from tests.faults.world import PASSWORD, USER, Served, World
from tests.ui.raw_http import Reply, connect, head_of, read_reply, request

PER_STEP = 12
UPLOAD, JOIN = "/gradio_api/upload", "/gradio_api/queue/join"
PATHS = ("/", "/config", "/gradio_api/info", UPLOAD, JOIN, "/login", "/gradio_api/queue/data?session_hash=x", "/logout")
ADDRESSES = 200
EVENT_SECONDS = 20.0
EVENT = "event "

_MADE_BY_THE_PAGE = re.compile(r"[\w-]{22}")
"""Folders under names that cannot be guessed: some events of the page prepare a recording to be played."""


Drawn = tuple[str, Callable[[World], Outcome]]
"""A request in words, and what sends it."""


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """Some requests, and an honest one at the end."""
    served = world.studio(locked=rng.random() < 0.5)
    before = _uploads(served)
    for _ in range(PER_STEP):
        what, send = rng.choice(WAYS)(rng, served, world)
        yield send(world)
        if what.startswith(EVENT):
            # Gradio logs what it could make nothing of; whoever asked is told nothing of it.
            served.new_log()
        yield from complaints(what, served)
    if len(after := _uploads(served)) > len(before):
        yield Outcome(result=Result.WRONG, what=f"uploads of strangers were kept: {after[-1]}")
    ask = partial(request, served.address, "/config", **_cookie(served))
    yield asked("the page's configuration", ask, world, expected=(200,))


def _uploads(served: Served) -> list[str]:
    """Files of the page's folder, without those that the page has made itself."""
    found = (served.home / "temporary").rglob("*")
    return sorted(
        path.name
        for path in found
        if path.is_file() and path.name != ".lock" and not _MADE_BY_THE_PAGE.fullmatch(path.parent.name)
    )


def _cookie(served: Served) -> dict[str, str | None]:
    """What the operator's browser sends; nothing where there is no password."""
    if not served.locked:
        return {}
    if not served.cookie:
        reply = _log_in(served, PASSWORD, "192.0.2.77")
        if reply.status != 200:
            raise LeftOut(f"the operator cannot log in: {reply.status}")
        served.cookie = reply.cookies()[0].partition(";")[0]
    return {"cookie": served.cookie}


def _log_in(served: Served, password: str, address: str) -> Reply:
    fields = {"username": USER, "password": password}
    lines = [f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    body, kind = ("".join(lines) + "--b--\r\n").encode(), "multipart/form-data; boundary=b"
    return request(served.address, "/login", method="POST", body=body, content_type=kind, x_forwarded_for=address)


def _elsewhere(rng: random.Random, served: Served, world: World) -> Drawn:
    """Names that were led here and pages of other sites, with the operator's cookie."""
    headers: dict[str, str | None] = _cookie(served)
    if rng.random() < 0.5 and not served.locked:
        headers |= {"host": rng.choice((*FOREIGN_HOSTS, *MALFORMED))}
    else:
        headers |= {"origin": rng.choice((*FOREIGN_ORIGINS, *OTHER_PORTS, *MALFORMED))}
    path = rng.choice(PATHS)
    method = "POST" if path in (UPLOAD, JOIN, "/login", "/logout") else rng.choice(("GET", "OPTIONS"))

    def is_bad(reply: Reply) -> str:
        return "CORS" if reply.header("access-control-allow-origin") else ""

    ask = partial(request, served.address, path, method=method, body=b"{}" if method == "POST" else b"", **headers)
    return _ask(f"{method} {path} with {headers}", ask, expected=(400, 403), is_bad=is_bad)


def _foreign_upload(rng: random.Random, served: Served, world: World) -> Drawn:
    """Refused before the body is sent."""
    origin = rng.choice(FOREIGN_ORIGINS[:3])

    def ask() -> Reply:
        with connect(served.address) as connection:
            headers = [("Host", served.netloc), ("Origin", origin), ("Content-Type", "multipart/form-data; boundary=b")]
            headers += [("Cookie", cookie) for cookie in _cookie(served).values() if cookie]
            connection.sendall(head_of("POST", UPLOAD, [*headers, ("Content-Length", str(5 * 2**20))]))
            return read_reply(connection)

    return _ask(f"an upload from {origin}", ask, expected=(403,))


def _strangers(rng: random.Random, served: Served, world: World) -> Drawn:
    """Everything but the login, without a cookie or with one that is none."""
    if not served.locked:
        return _elsewhere(rng, served, world)
    path = rng.choice(
        ("/config", "/gradio_api/info", UPLOAD, JOIN, f"/gradio_api/file={world.canary}", "/gradio_api/x")
    )
    cookie = rng.choice((None, "x", "=;;", "access-token-unsecure-x=x", "access-token=" + "a" * 3000, "\x01=\x02"))
    method = "POST" if path in (UPLOAD, JOIN) else "GET"
    return _ask(
        f"{method} {path} with the cookie {cookie!r:.40}",
        partial(request, served.address, path, method=method, cookie=cookie),
        expected=(400, 401),
    )


def _guessing(rng: random.Random, served: Served, world: World) -> Drawn:
    """Twenty wrong passwords of one address; the right one from elsewhere is let in meanwhile."""
    if not served.locked:
        return _elsewhere(rng, served, world)
    address = f"203.0.113.{rng.randrange(ADDRESSES)}"
    wrong = ("", PASSWORD[:-1], PASSWORD.upper(), f"{PASSWORD} ", "' OR 1=1", str(rng.random()))
    guesses = [rng.choice(wrong) for _ in range(20)]

    def ask() -> Reply:
        replies = [_log_in(served, guess, address) for guess in guesses]
        assert all(reply.status in (400, 422, 429) for reply in replies), [reply.status for reply in replies]
        assert sum(reply.status != 429 for reply in replies) <= 10, "twenty guesses were looked at"
        return replies[-1]

    return _ask("twenty guesses", ask, expected=(429,))


def _files(rng: random.Random, served: Served, world: World) -> Drawn:
    """Files that are none of the page's, under every spelling."""
    home = served.home
    target = rng.choice(
        (world.canary, "/etc/passwd", home / "encore.sqlite", home / "watermark.key", "/proc/self/environ")
    )
    climbing = f"{home}/temporary/../../{world.canary.name}"
    spelled = rng.choice(
        (str(target), quote(str(target), safe=""), f"//{target}", f"/.{target}", climbing, f"file://{target}")
    )
    path = rng.choice((
        f"/gradio_api/file={spelled}", f"/file={spelled}", f"/gradio_api/stream/{spelled}", f"/assets/..{spelled}",
        f"/static/../../../../../..{spelled}", f"/static/%2e%2e/%2e%2e{spelled}", f"/gradio_api/proxy=http://127.0.0.1:9{spelled}",
        f"/theme.css?v={spelled}", f"/custom_component/x/y/{spelled}", f"/gradio_api/deep_link?session_hash={spelled}",
    ))  # fmt: skip
    ask = partial(request, served.address, path.replace(" ", "%20"), **_cookie(served))
    return _ask(f"GET {path[:100]}", ask, own=(climbing, str(target)))


def _events(rng: random.Random, served: Served, world: World) -> Drawn:
    """An event of the page with values of other kinds, among them files that are not its own; what it answers."""
    foreign = {"path": str(world.canary), "meta": {"_type": "gradio.FileData"}, "orig_name": "a.wav"}
    values = (*HOSTILE_VALUES[:-2], foreign, [foreign], {"url": "http://127.0.0.1:9/a.wav", **foreign}, "x" * 5000)
    number = rng.choice((rng.randrange(150), rng.randrange(150), -1, 10**6))
    data = [rng.choice(values) for _ in range(rng.choice((0, 1, 3, 6, 12)))]
    session = f"{rng.getrandbits(40):x}"
    body = json.dumps({"fn_index": number, "data": data, "session_hash": session}).encode()

    def ask() -> Reply:
        sent = {"method": "POST", "content_type": "application/json", **_cookie(served)}
        joined = request(served.address, JOIN, body=body, **sent)
        if joined.status != 200:
            return joined
        return Reply(200, [], _answers(served, session))

    # What the page plays lies in its own temporary folder, by whose path Gradio addresses it.
    own = (str(world.canary), str(served.home / "temporary"))
    return _ask(f"{EVENT}{number} with {data!r:.200}", ask, own=own)


def _answers(served: Served, session: str) -> bytes:
    """What the queue sends until the event is done, or for a while."""
    with connect(served.address) as connection:
        connection.settimeout(EVENT_SECONDS)
        headers = [("Host", served.netloc), ("Connection", "close")]
        headers += [("Cookie", cookie) for cookie in _cookie(served).values() if cookie]
        connection.sendall(head_of("GET", f"/gradio_api/queue/data?session_hash={session}", headers))
        content = b""
        try:
            while (piece := connection.recv(65536)) and b'"process_completed"' not in content + piece:
                content += piece
        except TimeoutError:
            pass
        return content + piece


def _ask(what: str, ask: Callable[[], Reply], **checks: Any) -> Drawn:
    return what, lambda world: asked(what, ask, world, **checks)


WAYS = (
    _elsewhere,
    _elsewhere,
    _foreign_upload,
    _strangers,
    _strangers,
    _guessing,
    _files,
    _files,
    _files,
    _events,
    _events,
)

ATTACK = Attack(name="studio requests", weight=1.5, attack=step)
