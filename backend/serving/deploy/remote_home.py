"""What is stored, for a process that has no home: each call is answered by the one that has it, see `HomeService`."""

from __future__ import annotations

import builtins
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from prometheus_client.core import Metric
from pydantic import JsonValue

from backend.audio.formats import FORMAT_TABLE, AudioFormat
from backend.errors import EncoreError
from backend.provenance.signing import SigningState
from backend.provenance.statement import SpeechStatement
from backend.provenance.verdict import Verdict
from backend.serving.api.metrics import ApiMetrics, MetricTotals
from backend.serving.api.stored import HomeStores, RecordingChecker, Signer, TakeStore, TrashStore, VoiceStore
from backend.serving.deploy.home_calls import HomeCall, Scope, Send, SentFile
from backend.serving.errors import HomeUnavailable
from backend.store.tables import Kind
from backend.store.trash import Deleted
from backend.takes.take import Take, TakeFacts
from backend.tenants.keys import ApiKey
from backend.tenants.limits import LimitChanges
from backend.tenants.tenant_store import TenantStore, UsageStore
from backend.tenants.usage import Left
from backend.voices.consent import Consent
from backend.voices.published_index import PublishedIndex
from backend.voices.voice import Voice
from backend.web.attempts import AddressAttempts, Attempts
from training.model.owner import temporary_folder

_TELL_SECONDS = 2.0
"""Between two messages of what was counted here, for the totals that another process is asked for."""

_logger = logging.getLogger(__name__)
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def remote_stores(send: Send, *, keeps_takes: bool, index: PublishedIndex | None = None) -> HomeStores:
    """Everything of the home that `send` asks.

    Args:
        send: asks it; see `HomeService.answer`.
        keeps_takes: whether takes are kept there.
        index: of the voices that are in the object storage, in which the operator speaks while the home is away.
    """
    home = _Home(send)
    return HomeStores(
        voices=_Voices(home, Scope(part="voices"), index),
        takes=_Takes(home, Scope(part="takes")) if keeps_takes else None,
        signer=_Signer(home),
        checker=_Checker(home),
        tenants=_Tenants(home),
        attempts=_Attempts(home),
        totals=_Totals(home),
    )


def keep_telling(totals: MetricTotals, process: str, metrics: ApiMetrics) -> threading.Event:
    """Tell now and then what was counted here, in a thread of its own, until the event that is returned is set."""
    has_ended = threading.Event()

    def work() -> None:
        while not has_ended.wait(_TELL_SECONDS):
            try:
                totals.exchange(process, metrics.counts())
            except EncoreError as error:
                _logger.info("counts could not be told: %s", error)

    threading.Thread(target=work, daemon=True, name="counts").start()
    return has_ended


class _Home:
    """Puts calls into words."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def ask(
        self,
        scope: Scope,
        method: Callable[Concatenate[Any, Parameters], Returned],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Returned:
        """Call a method there, and wait. Raises HomeUnavailable, and what the method raises."""
        answer: Returned = self.ask_freely(scope, method.__name__, *args, **kwargs)
        return answer

    # Any: files travel in place of paths, and answers are what the caller knows them to be.
    def ask_freely(self, scope: Scope, method: str, *args: Any, **kwargs: Any) -> Any:
        """The same, where what travels has other types than the method."""
        return self._send(HomeCall(scope=scope, method=method, args=args, kwargs=kwargs)).unwrap()


class _Trash:
    def __init__(self, home: _Home, scope: Scope) -> None:
        self._home, self._scope = home, scope

    def find(self, kind: Kind, wanted: str, owner: str | None = None) -> Deleted:
        return self._home.ask(self._scope, TrashStore.find, kind, wanted, owner)

    def restore(self, trash_id: str) -> Deleted:
        return self._home.ask(self._scope, TrashStore.restore, trash_id)

    def purge(self, trash_id: str, *, missing_ok: bool = False) -> None:
        self._home.ask(self._scope, TrashStore.purge, trash_id, missing_ok=missing_ok)


class _Voices:
    def __init__(self, home: _Home, scope: Scope, index: PublishedIndex | None) -> None:
        self._home, self._scope, self._index = home, scope, index

    @property
    def trash(self) -> _Trash:
        return _Trash(self._home, replace(self._scope, part="voice trash"))

    def of_tenant(self, tenant: str, max_voices: int | None = None) -> _Voices:
        # What is in the storage is the operator's.
        index = None if tenant else self._index
        return _Voices(self._home, replace(self._scope, tenant=tenant, max_voices=max_voices), index)

    def list(self) -> tuple[Voice, ...]:
        try:
            return self._home.ask(self._scope, VoiceStore.list)
        except HomeUnavailable:
            if self._index is None:
                raise
            return self._index.voices()

    def get(self, name: str) -> Voice:
        try:
            return self._home.ask(self._scope, VoiceStore.get, name)
        except HomeUnavailable:
            # One that is not there may still be in the home.
            if self._index is None or (voice := self._index.find(name)) is None:
                raise
            return voice

    def create_zero_shot(
        self,
        name: str,
        recordings: Path | Sequence[Path],
        *,
        consent: Consent | None,
        model: str,
        transcript: str | None = None,
        language: str = "auto",
        provenance: Mapping[str, JsonValue] | None = None,
        accept_synthetic: bool = False,
    ) -> Voice:
        paths = [recordings] if isinstance(recordings, Path) else recordings
        made: Voice = self._home.ask_freely(
            self._scope,
            VoiceStore.create_zero_shot.__name__,
            name,
            [_sent(path) for path in paths],
            consent=consent,
            model=model,
            transcript=transcript,
            language=language,
            provenance=provenance,
            accept_synthetic=accept_synthetic,
        )
        return made

    def delete(self, name: str) -> Deleted:
        return self._home.ask(self._scope, VoiceStore.delete, name)

    def restore(self, deleted: Deleted) -> Voice:
        return self._home.ask(self._scope, VoiceStore.restore, deleted)


class _Takes:
    def __init__(self, home: _Home, scope: Scope) -> None:
        self._home, self._scope = home, scope

    @property
    def trash(self) -> _Trash:
        return _Trash(self._home, replace(self._scope, part="take trash"))

    def of_tenant(self, tenant: str) -> _Takes:
        return _Takes(self._home, replace(self._scope, tenant=tenant))

    @contextmanager
    def incoming(self, suffix: str = ".wav") -> Iterator[Path]:
        """On this machine; it is sent once it is whole."""
        with temporary_folder() as folder:
            yield Path(folder) / f"take{suffix}"

    def add(self, facts: TakeFacts, file: Path, owner: str = "") -> Take:
        kept: Take = self._home.ask_freely(self._scope, TakeStore.add.__name__, facts, _sent(file), owner)
        return kept

    def list(self, owner: str | None = None, most: int | None = None) -> builtins.tuple[Take, ...]:
        return self._home.ask(self._scope, TakeStore.list, owner, most)

    def get(self, take_id: str, owner: str | None = None) -> Take:
        return self._home.ask(self._scope, TakeStore.get, take_id, owner)

    @contextmanager
    def sound_of(self, take: Take) -> Iterator[Path]:
        """A copy that is here for the block."""
        content: bytes = self._home.ask_freely(self._scope, TakeStore.sound_of.__name__, take)
        with temporary_folder() as folder:
            path = Path(folder) / f"take{FORMAT_TABLE[take.audio_format].suffix}"
            path.write_bytes(content)
            yield path

    def of_verdict(self, verdict: Verdict) -> Take | None:
        return self._home.ask(self._scope, TakeStore.of_verdict, verdict)

    def delete(self, take_id: str, owner: str | None = None) -> Deleted:
        return self._home.ask(self._scope, TakeStore.delete, take_id, owner)


class _Signer:
    _SCOPE = Scope(part="signer")

    def __init__(self, home: _Home) -> None:
        self._home = home

    def sign(self, content: bytes, audio_format: AudioFormat, statement: SpeechStatement | None) -> bytes:
        if statement is None or not FORMAT_TABLE[audio_format].signed_as:
            return content
        try:
            signed: bytes | None = self._home.ask_freely(
                self._SCOPE, Signer.sign.__name__, content, audio_format, statement
            )
        except HomeUnavailable as error:
            _logger.warning("a take is not signed: %s", error)
            return content
        return content if signed is None else signed

    def state(self) -> SigningState:
        return self._home.ask(self._SCOPE, Signer.state)


class _Checker:
    _SCOPE = Scope(part="checker")

    def __init__(self, home: _Home) -> None:
        self._home = home

    def check(self, path: Path) -> Verdict:
        verdict: Verdict = self._home.ask_freely(self._SCOPE, RecordingChecker.check.__name__, _sent(path))
        return verdict


class _Tenants:
    _SCOPE = Scope(part="tenants")

    def __init__(self, home: _Home) -> None:
        self._home = home
        self.usage = _Usage(home)

    def keys(self) -> tuple[ApiKey, ...]:
        return self._home.ask(self._SCOPE, TenantStore.keys)

    def limits(self) -> dict[str, LimitChanges]:
        return self._home.ask(self._SCOPE, TenantStore.limits)

    def mark_used(self, key_id: str) -> None:
        self._home.ask(self._SCOPE, TenantStore.mark_used, key_id)


class _Usage:
    _SCOPE = Scope(part="usage")

    def __init__(self, home: _Home) -> None:
        self._home = home

    def take_request(self, tenant: str, per_minute: int) -> Left:
        return self._home.ask(self._SCOPE, UsageStore.take_request, tenant, per_minute)

    def requests_left(self, tenant: str, per_minute: int) -> Left:
        return self._home.ask(self._SCOPE, UsageStore.requests_left, tenant, per_minute)

    def spend_characters(self, tenant: str, number: int, per_day: int) -> str:
        return self._home.ask(self._SCOPE, UsageStore.spend_characters, tenant, number, per_day)

    def require_characters(self, tenant: str, number: int, per_day: int) -> None:
        self._home.ask(self._SCOPE, UsageStore.require_characters, tenant, number, per_day)

    def give_back(self, tenant: str, number: int, day: str) -> None:
        self._home.ask(self._SCOPE, UsageStore.give_back, tenant, number, day)

    def characters_left(self, tenant: str, per_day: int) -> Left:
        return self._home.ask(self._SCOPE, UsageStore.characters_left, tenant, per_day)


class _Attempts:
    """Counted there for all processes; here while the home is away."""

    _SCOPE = Scope(part="attempts")

    def __init__(self, home: _Home) -> None:
        self._home, self._here = home, Attempts()

    def wait_seconds(self, address: str) -> float:
        try:
            return self._home.ask(self._SCOPE, AddressAttempts.wait_seconds, address)
        except HomeUnavailable:
            return self._here.wait_seconds(address)

    def try_begin(self, address: str) -> float:
        try:
            return self._home.ask(self._SCOPE, AddressAttempts.try_begin, address)
        except HomeUnavailable:
            return self._here.try_begin(address)


class _Totals:
    _SCOPE = Scope(part="totals")

    def __init__(self, home: _Home) -> None:
        self._home = home

    def exchange(self, process: str, counts: tuple[Metric, ...]) -> tuple[Metric, ...]:
        return self._home.ask(self._SCOPE, MetricTotals.exchange, process, counts)


def _sent(path: Path) -> SentFile:
    return SentFile(path.name, path.read_bytes())
