"""Threads for what blocks: what may take long has its own, so that quick questions never wait behind it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from starlette.types import ASGIApp

NUM_QUICK, NUM_SLOW = 32, 16
"""Threads of a process that takes requests: for keys, limits and looks at what is stored, which wait for a moment at
most, and for recordings that are read, written or signed, which may each take minutes."""

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

# Of the process, and made one by one as they are needed.
_slow = ThreadPoolExecutor(NUM_SLOW, thread_name_prefix="api-slow")


async def slowly(
    function: Callable[Parameters, Returned], /, *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Returned:
    """Like `asyncio.to_thread`, for what may take long; waits where all threads for that are in use."""
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_slow, call)


@asynccontextmanager
async def enough_quick_threads(_: ASGIApp) -> AsyncIterator[None]:
    """The lifespan of the API: `asyncio.to_thread` gets as many threads as many requests need.

    By itself a loop has four more than there are processors, and in a process that Ray Serve gave no processor five.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(NUM_QUICK, thread_name_prefix="api-quick"))
    yield
