"""Who may use the API and how much, as the database says now; asked by every request, and read once a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.errors import EncoreError
from backend.tenants.keys import ApiKey
from backend.tenants.limits import Limits
from backend.tenants.tenant_store import TenantStore

FRESH_SECONDS = 1.0
"""How long a key that was revoked, in whichever process, may still open the API."""

_USED_SECONDS = 60.0
"""Between two notes that a key is in use."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Entries:
    keys: tuple[ApiKey, ...]
    has_ever_had_keys: bool
    limits: dict[str, Limits]
    read_at: float


class TenantDirectory:
    """Keys and limits of one home; belongs to one event loop."""

    def __init__(
        self, store: TenantStore, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read from a store; `limits` are those of tenants for whom nothing else was said."""
        self.usage, self._store = store.usage, store
        self._limits, self._clock = limits or Limits(), clock
        self._entries: _Entries | None = None
        self._reading = asyncio.Lock()
        self._noted: dict[str, float] = {}

    async def keys(self) -> tuple[ApiKey, ...]:
        """Keys that open the API. Raises EncoreError."""
        return (await self._current()).keys

    async def has_ever_had_keys(self) -> bool:
        """Whether a key was ever made: without one, the API may be open to this machine. Raises EncoreError."""
        return (await self._current()).has_ever_had_keys

    async def limits_of(self, tenant: str) -> Limits:
        """Of one tenant; the operator's as they were last known while they cannot be read. Raises EncoreError."""
        try:
            entries = await self._current()
        except EncoreError:
            if tenant:
                raise
            return self._entries.limits.get(tenant, self._limits) if self._entries is not None else self._limits
        return entries.limits.get(tenant, self._limits)

    async def note_use(self, key: ApiKey) -> None:
        """Remember that a key is in use, now and then; no room for it is no reason to refuse it."""
        now = self._clock()
        if now - self._noted.get(key.id, -_USED_SECONDS) < _USED_SECONDS:
            return
        self._noted[key.id] = now
        try:
            await asyncio.to_thread(self._store.mark_used, key.id)
        except EncoreError as error:
            _logger.warning("the use of a key is not noted: %s", error)

    async def _current(self) -> _Entries:
        if self._is_fresh(self._entries):
            assert self._entries is not None
            return self._entries
        async with self._reading:
            # Another request may have read it meanwhile.
            if not self._is_fresh(self._entries):
                self._entries = await asyncio.to_thread(self._read)
            assert self._entries is not None
            return self._entries

    def _is_fresh(self, entries: _Entries | None) -> bool:
        return entries is not None and self._clock() - entries.read_at < FRESH_SECONDS

    def _read(self) -> _Entries:
        read_at = self._clock()
        all_keys = self._store.keys()
        limits = {tenant: changes.applied_to(self._limits) for tenant, changes in self._store.limits().items()}
        return _Entries(
            keys=tuple(key for key in all_keys if key.revoked_at is None),
            has_ever_had_keys=bool(all_keys),
            limits=limits,
            read_at=read_at,
        )
