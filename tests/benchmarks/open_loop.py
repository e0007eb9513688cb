"""Listeners over HTTP who come when they come, whether or not others are still being served: an open loop.

A program of its own, so that what listening costs is not charged to the server. Started by `serving_http.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from backend.serving.api.streaming import LEAD_HEADER
from backend.serving.engine.take_stream import PlaybackClock

BYTES_PER_SAMPLE = 2
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Led:
    """What a listener experienced who began with a lead.

    Attributes:
        seconds: that he was told to have in hand.
        waited_seconds: from the first sound until he began.
    """

    seconds: float
    waited_seconds: float
    num_underruns: int
    max_pause_seconds: float


class LedClock:
    """A player that begins once it has the lead in hand, or all there is."""

    def __init__(self, lead_seconds: float) -> None:
        self._lead, self._clock = lead_seconds, PlaybackClock()
        self._in_hand, self._first_at, self._begun_at = 0.0, 0.0, 0.0

    def add(self, seconds: float, now: float) -> None:
        """Count sound that has arrived."""
        self._first_at = self._first_at or now
        if self._begun_at:
            self._clock.add(seconds, now)
            return
        self._in_hand += seconds
        if self._in_hand >= self._lead:
            self._begin(now)

    def end(self, now: float) -> Led:
        """What it came to; who has not begun yet begins now."""
        if not self._begun_at:
            self._begin(now)
        return Led(
            seconds=self._lead,
            waited_seconds=self._begun_at - self._first_at,
            num_underruns=self._clock.num_underruns,
            max_pause_seconds=self._clock.max_pause_seconds,
        )

    def _begin(self, now: float) -> None:
        self._begun_at = now
        self._clock.add(self._in_hand, now)


@dataclass(frozen=True, kw_only=True)
class HeardOverHttp:
    """What one listener experienced; without sound where he was turned away.

    Attributes:
        status: of the answer.
        sound_seconds: heard.
        first_audio_seconds: from asking to the first sound.
        num_underruns: chunks that came after everything before them had been played.
        max_pause_seconds: the longest wait for one.
        num_chunks: heard.
        lead: the same for one who begins with the sound in hand that the server has told.
        ended_at: seconds since the load began.
    """

    status: int
    sound_seconds: float = 0.0
    first_audio_seconds: float = 0.0
    num_underruns: int = 0
    max_pause_seconds: float = 0.0
    num_chunks: int = 0
    lead: Led | None = None
    ended_at: float = 0.0


class Crowd:
    """Everybody who listens to one server."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.sentences: list[str] = setup["sentences"]
        self.voice, self.sample_rate = setup["voice"], setup["sample_rate"]
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.AsyncClient(base_url=setup["address"], timeout=PATIENCE_SECONDS, limits=limits)

    async def serve(self, question: dict[str, Any]) -> dict[str, Any]:
        """One load: `per_second` arrivals for `seconds`, or `count` of them, at most `at_once` at a time.

        With `long_text` somebody listens to that from the beginning, and is the first of those who heard.
        """
        randomly, began = random.Random(question["seed"]), time.monotonic()
        room = asyncio.Semaphore(question.get("at_once") or sys.maxsize)
        listeners: list[asyncio.Task[HeardOverHttp]] = []
        pace, left = question.get("per_second"), question.get("count")
        if question.get("long_text"):
            listeners.append(asyncio.create_task(self._listen(question["seed"], began, room, question["long_text"])))
        while (left is None or len(listeners) < left) and (
            left is not None or time.monotonic() - began < question["seconds"]
        ):
            if pace:
                await asyncio.sleep(randomly.expovariate(pace))
            seed = question["seed"] * 10_000 + len(listeners)
            listeners.append(asyncio.create_task(self._listen(seed, began, room, question.get("text"))))
        heard = await asyncio.gather(*listeners)
        return {"wall_seconds": time.monotonic() - began, "heard": [asdict(one) for one in heard]}

    async def _listen(self, seed: int, began: float, room: asyncio.Semaphore, text: str | None) -> HeardOverHttp:
        async with room:
            body = {"voice": self.voice, "input": text or self.sentences[seed % len(self.sentences)], "seed": seed}
            asked, clock, first, num_chunks = time.monotonic(), PlaybackClock(), 0.0, 0
            request = {**body, "response_format": "pcm"}
            async with self.client.stream("POST", "/v1/audio/speech", json=request) as answer:
                if answer.status_code != httpx.codes.OK:
                    await answer.aread()
                    return HeardOverHttp(status=answer.status_code, ended_at=time.monotonic() - began)
                led = LedClock(float(answer.headers.get(LEAD_HEADER, 0.0)))
                async for chunk in answer.aiter_raw():
                    now, num_chunks = time.monotonic(), num_chunks + 1
                    led.add(len(chunk) / BYTES_PER_SAMPLE / self.sample_rate, now)
                    first = first or now - asked
                    clock.add(len(chunk) / BYTES_PER_SAMPLE / self.sample_rate, now)
            return HeardOverHttp(
                status=answer.status_code,
                sound_seconds=clock.seconds,
                first_audio_seconds=first,
                num_underruns=clock.num_underruns,
                max_pause_seconds=clock.max_pause_seconds,
                num_chunks=num_chunks,
                lead=led.end(time.monotonic()) if num_chunks else None,
                ended_at=time.monotonic() - began,
            )


async def answer_questions() -> None:
    """Answer one line of JSON with another until nobody asks."""
    crowd = Crowd(json.loads(await asyncio.to_thread(sys.stdin.readline)))
    print(json.dumps({}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await crowd.serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(answer_questions())
