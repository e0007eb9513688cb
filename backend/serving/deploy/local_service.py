"""Speaking in the process that takes the requests: no cluster, one set of engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from backend.serving.deploy.threads import iterate_in_thread
from backend.serving.errors import TooBusy
from backend.serving.protocol import ServiceState
from backend.serving.requests import SpeechFailure, SpeechItem, SynthesisRequest
from backend.serving.synthesizer import VoiceSpeaker

MAX_REQUESTS = 40
"""Eight that speak and thirty-two that wait; each holds a thread, which sleeps."""

_RETRY_AFTER_SECONDS = 2.0


class LocalSpeech:
    """Speaks orders with engines of this process."""

    def __init__(self, speaker: VoiceSpeaker, max_requests: int = MAX_REQUESTS) -> None:
        self._speaker, self._max_requests = speaker, max_requests
        self._executor = ThreadPoolExecutor(max_requests, thread_name_prefix="speech")
        self.num_requests = 0

    async def speak(self, order: SynthesisRequest) -> AsyncGenerator[SpeechItem]:
        """Sound as it is made, then a summary, or a failure in the place of either."""
        if self.num_requests >= self._max_requests:
            busy = f"{self.num_requests} requests are being served, and {self._max_requests} are the most."
            yield SpeechFailure(error=TooBusy(busy, retry_after_seconds=_RETRY_AFTER_SECONDS))
            return
        self.num_requests += 1
        items = iterate_in_thread(self._executor, lambda cancelled: self._speaker.speak(order, cancelled))
        try:
            async for item in items:
                yield item
        finally:
            self.num_requests -= 1
            await items.aclose()

    async def forget_deleted(self) -> None:
        """Let go of the weights of deleted voices."""
        await asyncio.to_thread(self._speaker.forget_deleted)

    async def state(self, *, with_engines: bool = False) -> ServiceState:
        """Where it stands."""
        engines = self._speaker.statistics() if with_engines else {}
        return ServiceState(is_healthy=self._speaker.is_healthy, engines=engines)

    def close(self) -> None:
        """End the engines and the threads."""
        self._speaker.close()
        self._executor.shutdown(wait=True)
