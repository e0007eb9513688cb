"""What the tenant who asks may still do: requests are taken off at the door, characters when they are to be spoken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.errors import EncoreError
from backend.serving.api.access import OPEN_PATHS
from backend.serving.api.errors import error_response
from backend.tenants.directory import TenantDirectory
from backend.tenants.errors import QuotaExceeded
from backend.tenants.limits import Limits
from backend.tenants.tenant_store import UsageStore
from backend.tenants.usage import Left

_MINUTE, _HOUR = 60, 3600
_logger = logging.getLogger(__name__)


@dataclass
class Spending:
    """Of characters that were taken off for one speech.

    Attributes:
        is_spoken: whether there was sound for them; they are given back otherwise.
    """

    is_spoken: bool = False


class Allowance:
    """Of one request; what it finds out is told in the headers of the answer."""

    def __init__(self, usage: UsageStore | None = None, tenant: str = "", limits: Limits | None = None) -> None:
        """Count for a tenant; nothing is counted without `usage`, or where the limits have none of that kind."""
        self._usage, self._tenant, self.limits = usage, tenant, limits or Limits()
        self._requests: Left | None = None
        self._characters: Left | None = None

    async def take_request(self) -> None:
        """Count this request. Raises QuotaExceeded."""
        if self._usage is not None and self.limits.has_usage:
            await asyncio.to_thread(self._take_request, self._usage)

    async def require_characters(self, number: int) -> None:
        """Refuse what could not be spoken in whole, before any of it is. Raises QuotaExceeded."""
        if self._usage is not None and (per_day := self.limits.characters_per_day) is not None:
            await asyncio.to_thread(self._usage.require_characters, self._tenant, number, per_day)

    @asynccontextmanager
    async def spending(self, number: int) -> AsyncGenerator[Spending]:
        """Take characters off while they are spoken; they are given back unless there was sound.

        Raises:
            QuotaExceeded: there are not so many left.
        """
        spending = Spending()
        usage, per_day = self._usage, self.limits.characters_per_day
        if usage is None or per_day is None:
            yield spending
            return
        taking = asyncio.create_task(asyncio.to_thread(self._spend, usage, number, per_day))
        try:
            # Shielded, here and below: a client may leave at any moment, and what is begun in a thread goes on.
            await asyncio.shield(taking)
            yield spending
        finally:
            if not spending.is_spoken:
                await asyncio.shield(self._give_back(usage, number, taking))

    async def _give_back(self, usage: UsageStore, number: int, taking: asyncio.Task[str]) -> None:
        try:
            day = await taking
        except EncoreError:
            return  # they were refused
        try:
            await asyncio.to_thread(usage.give_back, self._tenant, number, day)
        except EncoreError as error:
            # The speech has ended for a reason of its own, which is what the client is told.
            _logger.warning("%d characters are not given back: %s", number, error)

    def _take_request(self, usage: UsageStore) -> None:
        limits = self.limits
        if limits.characters_per_day is not None:
            self._characters = usage.characters_left(self._tenant, limits.characters_per_day)
        if limits.requests_per_minute is not None:
            try:
                self._requests = usage.take_request(self._tenant, limits.requests_per_minute)
            except QuotaExceeded:
                self._requests = usage.requests_left(self._tenant, limits.requests_per_minute)
                raise

    def _spend(self, usage: UsageStore, number: int, per_day: int) -> str:
        day = usage.spend_characters(self._tenant, number, per_day)
        self._characters = usage.characters_left(self._tenant, per_day)
        return day

    def write_headers(self, headers: MutableHeaders) -> None:
        """Tell what is left, in OpenAI's names and its form of durations."""
        for name, left in (("requests", self._requests), ("characters", self._characters)):
            if left is not None:
                headers[f"x-ratelimit-limit-{name}"] = str(left.limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(left.remaining)
                headers[f"x-ratelimit-reset-{name}"] = duration(left.reset_seconds)


class RateLimits:
    """Counts every request that was let in, and refuses those that are too many."""

    def __init__(self, app: ASGIApp, *, directory: TenantDirectory | None) -> None:
        self._app, self._directory = app, directory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 429 itself, or pass the request on; the answer says what is left."""
        directory = self._directory
        if scope["type"] != "http" or directory is None or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return

        async def send_with_limits(message: Message) -> None:
            """Add the headers."""
            if message["type"] == "http.response.start":
                allowance.write_headers(MutableHeaders(scope=message))
            await send(message)

        allowance = Allowance()
        try:
            tenant = scope["state"]["tenant"]
            allowance = Allowance(directory.usage, tenant, await directory.limits_of(tenant))
            scope["state"]["allowance"] = allowance
            await allowance.take_request()
        except EncoreError as error:
            await error_response(error)(scope, receive, send_with_limits)
            return
        await self._app(scope, receive, send_with_limits)


def duration(seconds: float) -> str:
    """A time as OpenAI writes it: `350ms`, `7.5s`, `6m0s`, `8h12m3s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < _MINUTE:
        return f"{round(seconds, 1):g}s"
    hours, rest = divmod(round(seconds), _HOUR)
    return (f"{hours}h" if hours else "") + f"{rest // _MINUTE}m{rest % _MINUTE}s"
