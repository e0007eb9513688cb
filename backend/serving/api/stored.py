"""What the API needs of everything that is stored: in this process, or in the one that has the home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from backend.audio.formats import AudioFormat
from backend.provenance.signing import SigningState
from backend.provenance.statement import SpeechStatement
from backend.provenance.verdict import Verdict
from backend.serving.api.metrics import MetricTotals
from backend.store.tables import Kind
from backend.store.trash import Deleted
from backend.takes.take import Take, TakeFacts
from backend.tenants.tenant_store import TenantStore
from backend.voices.consent import Consent
from backend.voices.voice import Voice
from backend.web.attempts import AddressAttempts


class TrashStore(Protocol):
    """See `Trash`."""

    def find(self, kind: Kind, wanted: str, owner: str | None = None) -> Deleted:
        """What was deleted last of a kind under this id or name. Raises TrashNotFound."""

    def restore(self, trash_id: str) -> Deleted:
        """Undo a deletion. Raises TrashNotFound, TrashNameTaken, TrashBusy."""

    def purge(self, trash_id: str, *, missing_ok: bool = False) -> None:
        """Remove something for good. Raises TrashNotFound, TrashBusy, StorageError."""


class VoiceStore(Protocol):
    """See `Voices`; may be called from any thread, and may wait."""

    @property
    def trash(self) -> TrashStore:
        """What was deleted of them."""

    def of_tenant(self, tenant: str, max_voices: int | None = None) -> VoiceStore:
        """The same as another tenant sees it; costs nothing."""

    def list(self) -> tuple[Voice, ...]:
        """All voices, the oldest first."""

    def get(self, name: str) -> Voice:
        """Find a voice by its name or its id. Raises VoiceNotFound."""

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
        """Make a voice of recordings. Raises EncoreError, see `Voices.create_zero_shot`."""

    def delete(self, name: str) -> Deleted:
        """Put a voice into the trash. Raises VoiceNotFound."""

    def restore(self, deleted: Deleted) -> Voice:
        """Undo a deletion. Raises EncoreError, see `Voices.restore`."""


class TakeStore(Protocol):
    """See `Takes`; may be called from any thread, and may wait."""

    @property
    def trash(self) -> TrashStore:
        """What was deleted of them."""

    def of_tenant(self, tenant: str) -> TakeStore:
        """The same as another tenant sees it; costs nothing."""

    def incoming(self, suffix: str = ".wav") -> AbstractContextManager[Path]:
        """A name to write a take's file under until it is added. Raises StoreError."""

    def add(self, facts: TakeFacts, file: Path, owner: str = "") -> Take:
        """Keep a finished file, which is taken over. Raises StoreError."""

    def list(self, owner: str | None = None, most: int | None = None) -> tuple[Take, ...]:
        """The newest first: those of one list, or all."""

    def get(self, take_id: str, owner: str | None = None) -> Take:
        """One take. Raises TakeNotFound."""

    def sound_of(self, take: Take) -> AbstractContextManager[Path]:
        """The file of a take, for a block. Raises TakeNotFound."""

    def of_verdict(self, verdict: Verdict) -> Take | None:
        """The take that a checked file is."""

    def delete(self, take_id: str, owner: str | None = None) -> Deleted:
        """Put a take into the trash. Raises TakeNotFound."""


class Signer(Protocol):
    """See `FileSigner`."""

    def sign(self, content: bytes, audio_format: AudioFormat, statement: SpeechStatement | None) -> bytes:
        """A whole file with its statement signed into it; the very same object where that cannot be done."""

    def state(self) -> SigningState:
        """Who signs, and what stands in the way."""


class RecordingChecker(Protocol):
    """See `Checker`."""

    def check(self, path: Path) -> Verdict:
        """What can be said of an untrusted file. Raises RecordingError."""


@dataclass(frozen=True, kw_only=True)
class HomeStores:
    """Everything of one home that the API works with.

    Attributes:
        voices: the registry, read for each request, so that a new voice needs no restart.
        takes: where what was spoken is kept; None keeps nothing.
        signer: signs what leaves as a whole file.
        checker: says of recordings what they say of themselves.
        tenants: keys, limits, and what was used of them.
        attempts: wrong keys.
        totals: counts of all processes that take requests, where there may be several.
    """

    voices: VoiceStore
    takes: TakeStore | None
    signer: Signer
    checker: RecordingChecker
    tenants: TenantStore
    attempts: AddressAttempts
    totals: MetricTotals | None = None
