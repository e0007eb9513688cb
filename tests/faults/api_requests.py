"""Requests to the API that no honest client sends: answered in its error form, and honest ones as before."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.backend.serving.api.served import is_same_sound
from tests.faults.attack import Attack, Outcome
from tests.faults.damage import HOSTILE_VALUES, UNSAYABLE, damaged
from tests.faults.http import FOREIGN_HOSTS, FOREIGN_ORIGINS, MALFORMED, asked, complaints, send_raw
from tests.faults.world import KEY, SPOKEN, Served, World
from tests.ui.raw_http import Reply, connect, head_of, read_reply, request

PER_STEP = 12
SPEECH, COMPARE, VOICES, CHECK = "/v1/audio/speech", "/v1/compare", "/v1/audio/voices", "/v1/audio/check"
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X" * 50)
IDS = (
    "0" * 32,
    "x",
    "..",
    "../..",
    "%2e%2e%2f%2e%2e%2fcanary.txt",
    "%00",
    "a" * 5000,
    "'",
    "*",
    "Anna%0d%0aX: y",
    "é",
    " ",
)
FIELDS = (
    "input",
    "voice",
    "model",
    "seed",
    "speed",
    "language",
    "response_format",
    "stream",
    "stream_format",
    "surprise",
)
KINDS_OF_BODY = (
    "application/json",
    "text/plain",
    "multipart/form-data",
    "multipart/form-data; boundary=b",
    "",
    "a/b; c",
)
SHORT = 40
"""Characters of a text that may have to be spoken by random weights, which seldom end by themselves."""

Drawn = tuple[str, Callable[[World], Outcome]]
"""A request in words, and what sends it."""


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """Some requests, and an honest one at the end."""
    served = world.server(locked=rng.random() < 0.3)
    for _ in range(PER_STEP):
        what, send = rng.choice(WAYS)(rng, served)
        yield send(world)
        yield from complaints(what, served)
    yield honest(served, world)
    yield from complaints("an honest request", served)


def honest(served: Served, world: World) -> Outcome:
    """A take whose sound is known; the first one is remembered."""

    def is_bad(reply: Reply) -> str:
        served.sound = served.sound or reply.body
        return "" if is_same_sound(reply.body, served.sound) else "the sound differs"

    ask = partial(_post, served, SPEECH, json.dumps(SPOKEN).encode())
    return asked("an honest request", ask, world, expected=(200,), is_bad=is_bad)


def _headers(served: Served, **more: str | None) -> dict[str, str | None]:
    return ({"authorization": f"Bearer {KEY}"} if served.locked else {}) | more


def _post(served: Served, path: str, body: bytes, kind: str = "application/json", **headers: str | None) -> Reply:
    given = _headers(served, content_type=kind, **headers)
    return request(served.address, path, method="POST", body=body, **given)


def _body(rng: random.Random) -> dict[str, Any]:
    """A request for speech with faults, or one for a comparison."""
    body: dict[str, Any] = dict(SPOKEN)
    if rng.random() < 0.2:
        body = {"voices": ["Anna", "Tuned"], "input": "Hi.", "seed": 1}
    for _ in range(rng.choice((1, 1, 2, 3))):
        field = rng.choice((*FIELDS, *body))
        if rng.random() < 0.15:
            body.pop(field, None)
        else:
            value = rng.choice((*HOSTILE_VALUES, *UNSAYABLE))
            # What can be said has to be short.
            is_long = isinstance(value, str) and SHORT < len(value) < 4096 and value not in UNSAYABLE
            body[field] = value[:SHORT] if is_long else value
    return body


def _fuzzed(rng: random.Random, served: Served) -> Drawn:
    body = _body(rng)
    path = COMPARE if "voices" in body else SPEECH
    content = json.dumps(body).encode()
    return _ask(f"{path} {content[:200]!r}", partial(_post, served, path, content), is_bad=_is_in_error_form)


def _broken(rng: random.Random, served: Served) -> Drawn:
    content = json.dumps(SPOKEN | {"input": rng.choice(UNSAYABLE)}).encode()
    how, content = rng.choice(
        (damaged(content, rng), ("deep", b"[" * 100_000), ("random", rng.randbytes(2000)), ("none", b""))
    )
    path, kind = rng.choice((SPEECH, COMPARE, VOICES, CHECK)), rng.choice(KINDS_OF_BODY)
    ask = partial(_post, served, path, content, kind)
    return _ask(f"{path} as {kind!r}, {how}", ask, is_bad=_is_in_error_form)


def _form(rng: random.Random, served: Served) -> Drawn:
    """Uploads with hostile names, fields and contents."""
    name = rng.choice(
        ("../../etc/passwd", "a" * 300 + ".wav", "", "\x00", "😀.wav", 'a"b', "a\nb", "/etc/passwd", "C:\\a")
    )
    fields = {"input": "Hi.", "consent": "own-voice", "consent_by": "Anna", "name": "New", "speed": "1"}
    fields[rng.choice((*fields, "surprise"))] = str(rng.choice(HOSTILE_VALUES))
    lines = [f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    content = rng.choice((b"", rng.randbytes(3000), b"RIFF" + bytes(100), b"PK\x03\x04" + bytes(100)))
    path = rng.choice((SPEECH, VOICES, CHECK))
    field = rng.choice(("ref_audio", "file", "audio_sample"))
    file = f'--b\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'
    body = "".join([*lines, file]).encode(errors="replace") + content + b"\r\n--b--\r\n"
    if rng.random() < 0.3:
        _, body = damaged(body, rng)
    ask = partial(_post, served, path, body, "multipart/form-data; boundary=b")
    return _ask(f"{path}, a form with {name[:20]!r} and {fields}", ask, is_bad=_is_in_error_form)


def _paths(rng: random.Random, served: Served) -> Drawn:
    some = rng.choice(IDS)
    path = rng.choice((
        f"{VOICES}/{some}", f"/v1/audio/takes/{some}", f"/v1/audio/takes/{some}/content",
        "//", "/v1/../../etc/passwd", "/v1/nothing", "/docs", "/%ff", "/" + "a/" * 3000, SPEECH, COMPARE, "/metrics?a",
    ))  # fmt: skip
    method = rng.choice(METHODS)
    # Nothing that exists is deleted here: what was acknowledged is another attack's.
    ask = partial(request, served.address, path.replace(" ", "%20"), method=method, **_headers(served))
    return _ask(f"{method[:10]} {path[:80]}", ask)


def _names(rng: random.Random, served: Served) -> Drawn:
    """Names that were led here, and pages of other sites."""
    if served.locked:
        return _keys(rng, served)
    host, origin, expected = served.netloc, None, (400, 403)
    if rng.random() < 0.5:
        host = rng.choice((*FOREIGN_HOSTS, *MALFORMED))
    else:
        origin = rng.choice((*FOREIGN_ORIGINS, *MALFORMED))
    path = rng.choice((VOICES, SPEECH, "/v1/models", "/v1/audio/takes", "/metrics"))
    headers = _headers(served, host=host, origin=origin)
    method = "POST" if path == SPEECH else "GET"
    ask = partial(request, served.address, path, method=method, **headers)
    return _ask(f"{method} {path} with Host {host!r} and Origin {origin!r}", ask, expected=expected)


def _keys(rng: random.Random, served: Served) -> Drawn:
    if not served.locked:
        return _names(rng, served)
    wrong = rng.choice(
        (None, "Bearer", "Bearer ", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, "Bearer \xff")
    )
    address = f"203.0.113.{rng.randrange(250)}"
    path = rng.choice((VOICES, SPEECH, "/v1/models", "/v1/audio/takes", "/metrics", "/openapi.json", "/v1/nothing"))
    headers = {"authorization": wrong, "x_forwarded_for": address}
    ask = partial(request, served.address, path, method="POST" if path == SPEECH else "GET", **headers)
    return _ask(f"{path} with the key {wrong!r}", ask, expected=(401, 429))


def _guessing(rng: random.Random, served: Served) -> Drawn:
    """Forty wrong keys of one address; the operator's, from elsewhere, is let in meanwhile."""
    if not served.locked:
        return _names(rng, served)
    address = f"198.51.100.{rng.randrange(250)}"

    def ask() -> Reply:
        replies = [
            request(served.address, VOICES, authorization=f"Bearer {rng.random()}", x_forwarded_for=address)
            for _ in range(40)
        ]
        assert all(reply.status in (401, 429) for reply in replies), "a guess was let in"
        assert sum(reply.status == 401 for reply in replies) <= 10, "forty guesses were looked at"
        assert request(served.address, VOICES, **_headers(served)).status == 200, "the operator is shut out"
        return replies[-1]

    return _ask("forty guesses", ask, expected=(429,))


def _sizes(rng: random.Random, served: Served) -> Drawn:
    """Lengths that lie: the connection is closed with an answer, or the answer comes without the body."""
    length = rng.choice(("-1", "99999999999999999999", "x", "0x10", "1e3", "70000000", ""))
    headers = [("Host", served.netloc), ("Connection", "close"), ("Content-Type", "application/json")]
    headers += [("Authorization", f"Bearer {KEY}")] if served.locked else []
    if rng.random() < 0.3:
        content = head_of("POST", SPEECH, [*headers, ("Transfer-Encoding", "chunked")]) + b"zz\r\n{}\r\n0\r\n\r\n"
        return _ask("chunks of no size", partial(send_raw, served, content), expected=(400,))

    def ask() -> Reply:
        with connect(served.address) as connection:
            connection.sendall(head_of("POST", SPEECH, [*headers, ("Content-Length", length)]))
            return read_reply(connection)

    return _ask(f"a body of {length!r} bytes", ask, expected=(400, 413))


def _nonsense(rng: random.Random, served: Served) -> Drawn:
    """What is no HTTP."""
    head = head_of("GET", "/v1/models", [("Host", served.netloc), ("Connection", "close")])
    content = rng.choice((
        b"\x16\x03\x01\x02\x00\x01\x00" + rng.randbytes(100), b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 50 + b"x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", head.replace(b"Host", b"Ho st"),
        head.replace(b"\r\n\r\n", b"\r\n: x\r\n\r\n"), head.replace(b"Host", b"H\x00st"),
        head.replace(b"\r\n\r\n", b"\r\nX: " + b"a" * 5_000_000 + b"\r\n\r\n"),
    ))  # fmt: skip
    return _ask(f"{content[:60]!r}", partial(send_raw, served, content), expected=(400, 408, 431, 505))


def _ask(what: str, ask: Callable[[], Reply], **checks: Any) -> Drawn:
    return what, lambda world: asked(what, ask, world, **checks)


def _is_in_error_form(reply: Reply) -> str:
    """What is wrong about an error of the API's own."""
    if reply.status < 400:
        return ""
    try:
        error = json.loads(reply.body)["error"]
        is_form = set(error) == {"message", "type", "param", "code"} and bool(error["message"])
    except (ValueError, KeyError, TypeError):
        is_form = False
    return "" if is_form else f"an error of another form, status {reply.status}"


WAYS = (_fuzzed,) * 6 + (
    _broken,
    _broken,
    _form,
    _form,
    _paths,
    _paths,
    _names,
    _names,
    _keys,
    _guessing,
    _sizes,
    _nonsense,
)

ATTACK = Attack(name="API requests", weight=1.5, attack=step)
