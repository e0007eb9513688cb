"""From a thread that blocks to a coroutine that waits: iterating over what an engine makes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

Item = TypeVar("Item")


class _End:
    """Nothing more comes."""


async def iterate_in_thread(
    executor: Executor, make: Callable[[Callable[[], bool]], Iterator[Item]]
) -> AsyncGenerator[Item]:
    """Iterate in a thread of `executor`; `make` gets a function that says whether anybody still listens.

    Items that nobody has asked for yet wait in memory: whoever listens slowly shall not keep a slot from others.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Item | _End | BaseException] = asyncio.Queue()
    cancelled = threading.Event()

    def put(item: Item | _End | BaseException) -> None:
        """Hand an item to the loop's thread."""
        # A loop that is closed has nobody left who listens.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(queue.put_nowait, item)

    def pump() -> None:
        """Iterate until the end, or until nobody listens."""
        try:
            for item in make(cancelled.is_set):
                if cancelled.is_set():
                    break
                put(item)
            put(_End())
        except BaseException as error:  # noqa: BLE001 - handed to whoever listens, whatever it is
            put(error)

    executor.submit(pump)
    try:
        while not isinstance(item := await queue.get(), _End):
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        cancelled.set()
