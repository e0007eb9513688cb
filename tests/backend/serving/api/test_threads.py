"""Calls that take long keep no quick question waiting, on both ways of serving."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from backend.provenance.verdict import Verdict
from backend.serving.api.factory import create_api
from backend.serving.api.threads import NUM_QUICK, NUM_SLOW, slowly
from tests.backend.serving.api.served import DEADLINE_SECONDS

NUM_OF_RAY = 5
"""Threads of a loop in a replica that has no processor of its own."""


class _SlowChecker:
    """Checks recordings until it is allowed to end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()

    def check(self, path) -> Verdict:
        self.begun.release()
        assert self.may_end.wait(DEADLINE_SECONDS)
        raise RuntimeError


def test_slow_calls_keep_no_quick_one_waiting(context):
    checker = _SlowChecker()
    app = create_api(replace(context, checker=checker))

    async def scenario() -> int:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(NUM_OF_RAY))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            file = {"file": ("a.wav", b"sound")}
            slow = [asyncio.create_task(client.post("/v1/audio/check", files=file)) for _ in range(NUM_SLOW + 1)]
            try:
                for _ in range(NUM_OF_RAY):
                    assert await asyncio.wait_for(slowly_acquired(checker.begun), DEADLINE_SECONDS)
                answer = await asyncio.wait_for(client.get("/v1/audio/voices"), DEADLINE_SECONDS)
                assert not any(task.done() for task in slow)
                return answer.status_code
            finally:
                checker.may_end.set()
                await asyncio.gather(*slow)

    assert asyncio.run(scenario()) == 200


async def slowly_acquired(begun: threading.Semaphore) -> bool:
    """Look for a place without a thread, of which there may be none."""
    while not begun.acquire(blocking=False):
        await asyncio.sleep(0.01)
    return True


async def num_at_once(most: int) -> int:
    """How many quick calls have a thread at the same time."""
    together = threading.Barrier(most)
    waiting = [asyncio.create_task(asyncio.to_thread(together.wait, DEADLINE_SECONDS)) for _ in range(most)]
    done, _ = await asyncio.wait(waiting, timeout=20.0)
    together.abort()
    await asyncio.gather(*waiting, return_exceptions=True)
    return len(done)


# Ray trips over its own old settings while it is imported, and over its own way to end an application.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["here", "Ray Serve"])
def test_many_quick_calls_have_a_thread_each_as_soon_as_the_api_is_up(app, way):
    async def scenario() -> int:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(NUM_OF_RAY))
        if way == "here":
            async with app.router.lifespan_context(app):
                return await num_at_once(NUM_QUICK)
        from ray.serve._private.http_util import ASGIAppReplicaWrapper  # noqa: PLC0415 - seconds to load

        # What a replica does once it has built the application.
        replica = ASGIAppReplicaWrapper(app)
        await replica._run_asgi_lifespan_startup()
        try:
            return await num_at_once(NUM_QUICK)
        finally:
            await replica._serve_asgi_lifespan.shutdown()

    assert asyncio.run(scenario()) == NUM_QUICK


def test_what_is_slow_has_a_bounded_number_of_threads():
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1

    async def scenario() -> None:
        await asyncio.gather(*(slowly(work) for _ in range(5 * NUM_SLOW)))

    asyncio.run(scenario())
    assert most <= NUM_SLOW
