"""The one process that has the home's database and files; those that take requests ask it for all that is stored."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from backend.errors import EncoreError
from backend.serving.api.metrics import MetricTotals, TotalCounts
from backend.serving.api.stored import HomeStores, RecordingChecker, Signer, TakeStore, TrashStore, VoiceStore
from backend.serving.deploy.home_calls import HomeAnswer, HomeCall, HomeFacts, Part, Scope, SentFile
from backend.store.errors import StoreError
from backend.takes.errors import TakeNotFound
from backend.tenants.tenant_store import TenantStore, UsageStore
from backend.web.attempts import AddressAttempts
from training.model.owner import temporary_folder

_METHODS: dict[Part, type] = {
    "voices": VoiceStore,
    "voice trash": TrashStore,
    "takes": TakeStore,
    "take trash": TrashStore,
    "signer": Signer,
    "checker": RecordingChecker,
    "tenants": TenantStore,
    "usage": UsageStore,
    "attempts": AddressAttempts,
    "totals": MetricTotals,
}
"""What may be called."""

_NUM_QUICK, _NUM_SLOW = 32, 4


class HomeService:
    """Answers calls, on the machine of the database."""

    def __init__(self, stores: HomeStores, facts: HomeFacts) -> None:
        """Answer for a home that is open."""
        self.facts, self._stores, self._totals = facts, stores, TotalCounts()
        self._quick = ThreadPoolExecutor(_NUM_QUICK, thread_name_prefix="home")
        self._slow = ThreadPoolExecutor(_NUM_SLOW, thread_name_prefix="home-slow")

    async def ask(self, call: HomeCall) -> HomeAnswer:
        """Answer without keeping others waiting."""
        executor = self._slow if call.is_slow else self._quick
        return await asyncio.get_running_loop().run_in_executor(executor, self.answer, call)

    def answer(self, call: HomeCall) -> HomeAnswer:
        """Do what is asked; what a caller can be told is an answer, too."""
        if call.method.startswith("_") or call.method not in vars(_METHODS[call.scope.part]):
            raise ValueError(f"{call.scope.part} has no {call.method}")
        try:
            with ExitStack() as until_done:
                return HomeAnswer(value=self._do(call, until_done))
        except EncoreError as error:
            cause = error.__cause__
            return HomeAnswer(error=error, cause=cause if isinstance(cause, OSError | sqlite3.Error) else None)

    # Any: whatever the method takes and returns, see `HomeCall`.
    def _do(self, call: HomeCall, until_done: ExitStack) -> Any:
        part = self._part(call.scope)
        args = [self._received(value, call.scope, until_done) for value in call.args]
        value = getattr(part, call.method)(*args, **call.kwargs)
        if call.method == "sign":
            # The very same object says that it is not signed.
            return None if value is args[0] else value
        if call.method == "sound_of":
            try:
                return until_done.enter_context(value).read_bytes()
            except FileNotFoundError as error:
                raise TakeNotFound("The take was deleted meanwhile. List those there are.") from error
        return value

    def _received(self, value: Any, scope: Scope, until_done: ExitStack) -> Any:
        """A file that came along as a path, for as long as the call lasts; anything else as it is."""
        if isinstance(value, list):
            return [self._received(one, scope, until_done) for one in value]
        if not isinstance(value, SentFile):
            return value
        try:
            if scope.part == "takes" and self._stores.takes is not None:
                # On the disk of the takes, where it can take its place at once.
                path = until_done.enter_context(self._stores.takes.incoming(Path(value.name).suffix))
            else:
                path = Path(until_done.enter_context(temporary_folder())) / value.name
            path.write_bytes(value.content)
        except OSError as error:
            raise StoreError(f"{value.name} cannot be stored: {error.strerror or error}. Free some space.") from error
        return path

    def _part(self, scope: Scope) -> object:
        stores, part = self._stores, scope.part
        if part.startswith("voice"):
            voices = stores.voices.of_tenant(scope.tenant, scope.max_voices)
            return voices if part == "voices" else voices.trash
        if part.startswith("take"):
            assert stores.takes is not None
            takes = stores.takes.of_tenant(scope.tenant)
            return takes if part == "takes" else takes.trash
        return {
            "signer": stores.signer,
            "checker": stores.checker,
            "tenants": stores.tenants,
            "usage": stores.tenants.usage,
            "attempts": stores.attempts,
            "totals": self._totals,
        }[part]
