"""Requests for speech whose answers are known, and what became of each: a client that takes nothing for granted."""

from __future__ import annotations

import base64
import io
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any, Literal

import httpx

from tests.backend.serving.api.served import CONSENT, is_same_sound, wav_samples

PATIENCE_SECONDS = 150.0
"""More than the API gives itself: whoever waits longer has been forgotten."""

SENT_ALONG = "a recording"
TEXTS = (
    "Hi.",
    "One two three four five six seven.",
    "One two three four five six seven eight nine ten. " * 2,
    "One two three four five six seven eight nine ten eleven twelve. " * 6,
)

Way = Literal["whole", "file", "stream", "events"]
Ending = Literal["whole", "refused", "ended with its error", "broken off", "WRONG"]
WAYS: tuple[Way, ...] = ("whole", "file", "stream", "events")


@dataclass(frozen=True)
class Wish:
    """One thing that can be asked for; the same seed makes the same sound.

    Attributes:
        voice: a stored one, or `SENT_ALONG`.
        text: what is spoken.
        way: as one answer of samples or as a WAV, or as it is made: as samples, or as events.
    """

    voice: str
    text: str
    way: Way

    @property
    def sound(self) -> tuple[str, str]:
        """What decides how it sounds."""
        return self.voice, self.text


@dataclass(frozen=True)
class Sound:
    """What a wish sounds like where nothing disturbs it, with this seed."""

    seed: int
    samples: bytes


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one request.

    Attributes:
        wish: what was asked for.
        asked_at: seconds, of the monotonic clock.
        seconds: until the answer was over.
    first_seconds: until it began.
        ending: how it ended; WRONG is everything that a client could take for something else.
        said: the code of its error, or what was wrong.
            take_problem: why it was not kept.
    """

    wish: Wish
    asked_at: float
    seconds: float
    first_seconds: float
    ending: Ending
    said: str = ""
    take_problem: str = ""


def wishes(voices: tuple[str, ...], number: int) -> list[Wish]:
    """So many: each text in each voice and way before any of them comes again, shuffled, but always alike."""
    each = [Wish(voice, text, way) for voice, text, way in product(voices, TEXTS, WAYS)]
    random.Random(0).shuffle(each)
    return list(islice(cycle(each), number))


def ask(address: str, wish: Wish, recording: Path, expected: Sound) -> Outcome:
    """Ask once over a connection of its own, listen to the end, and judge."""
    asked_at = time.monotonic()
    first_seconds = 0.0

    def outcome(ending: Ending, said: str = "", take_problem: str = "") -> Outcome:
        seconds = time.monotonic() - asked_at
        return Outcome(
            wish=wish, asked_at=asked_at, seconds=seconds, first_seconds=first_seconds or seconds, ending=ending,
            said=said, take_problem=take_problem,
        )  # fmt: skip

    content = b""
    try:
        with (
            httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client,
            client.stream("POST", "/v1/audio/speech", **_request(wish, expected.seed, recording)) as response,
        ):
            for piece in response.iter_raw():
                first_seconds = first_seconds or time.monotonic() - asked_at
                content += piece
    except httpx.TimeoutException as error:
        return outcome("WRONG", f"nothing came for {PATIENCE_SECONDS:.0f} s: {type(error).__name__}")
    except httpx.TransportError as error:
        where = "in the middle" if first_seconds else "before any answer"
        return outcome("broken off", f"connection lost {where} ({type(error).__name__})")
    if response.status_code != httpx.codes.OK:
        code = _code(content)
        return outcome("refused" if code else "WRONG", f"{response.status_code} {code or content[:80]!r}")
    problem = response.headers.get("x-encore-take-problem", "")
    if wish.way == "events":
        events = list(_events(content))
        if events and events[-1]["type"] == "speech.audio.error":
            return outcome("ended with its error", str(events[-1]["error"]["code"]))
        if not events or events[-1]["type"] != "speech.audio.done":
            return outcome("WRONG", "events end without a word")
        problem = events[-1].get("take_problem", "")
        content = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    elif wish.way == "file":
        content = wav_samples(content)
    if not is_same_sound(content, expected.samples):
        return outcome("WRONG", f"{len(content)} bytes of other sound than the {len(expected.samples)} expected")
    return outcome("whole", take_problem=problem)


def _request(wish: Wish, seed: int, recording: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "input": wish.text,
        "seed": seed,
        "response_format": "wav" if wish.way == "file" else "pcm",
    }
    if wish.way == "events":
        fields["stream_format"] = "sse"
    is_streamed = wish.way in ("stream", "events")
    if wish.voice != SENT_ALONG:
        return {"json": fields | {"voice": wish.voice, "stream": is_streamed}}
    form = fields | {"stream": str(is_streamed).lower(), "consent": CONSENT.statement, "consent_by": CONSENT.who}
    return {"data": form, "files": {"ref_audio": ("anna.wav", io.BytesIO(recording.read_bytes()))}}


def _code(content: bytes) -> str:
    """Of an error in the API's form; empty for anything else."""
    try:
        error = json.loads(content)["error"]
        return str(error["code"]) if error["message"] else ""
    except (ValueError, KeyError, TypeError):
        return ""


def _events(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.decode().splitlines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
