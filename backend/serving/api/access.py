"""Who may use the API, from where, and how much may be sent at once: plain ASGI, in front of everything else."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.errors import EncoreError
from backend.serving.api.errors import ApiError, error_response
from backend.serving.errors import EngineBusy
from backend.tenants.directory import TenantDirectory
from backend.tenants.keys import ApiKey, digest_of
from backend.web.attempts import MAX_ENTRIES as MAX_KNOWN
from backend.web.attempts import AddressAttempts, Attempts
from backend.web.host_guard import HostGuard, Refusal
from backend.web.hosts import AllowedHosts

MAX_BODY_BYTES = 64 * 2**20
"""Five minutes of 96 kHz mono at 24 bit are 86 MB and nobody's speech; the same at 48 kHz are 43 MB."""

OPEN_PATHS = frozenset({"/healthz"})
"""For those who watch over the process; they learn nothing there."""


class AccessControl:
    """Lets in whoever has a key; without keys only this machine, and no web page that the browser happens to show.

    Who is let in stands in `scope["state"]`: the `tenant`, and the `client` by whom places are shared, which is the
    tenant, a key of the operator's, hashed, or else the address.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: AllowedHosts,
        api_keys: Sequence[str] = (),
        directory: TenantDirectory | None = None,
        attempts: AddressAttempts | None = None,
    ) -> None:
        """Let in the operator with one of `api_keys`, and tenants with theirs, which the directory knows."""
        self._app, self._directory = app, directory
        self._attempts: AddressAttempts = attempts or Attempts()
        # Hashes of one length: comparing them in constant time tells nothing about the keys.
        self._digests = tuple(map(digest_of, api_keys))
        # Which key is let in from where even while others guess there; bounded.
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        # A page has no key unless it was given one, so with keys it does not matter which name leads here.
        self._guarded, self._guarded_without_keys = (
            HostGuard(self._let_in, hosts=names, answer=_answer_refusal, own_origin_only=False)
            for names in (None, hosts)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 401, 403 or 429 itself, or pass the request on."""
        if scope["type"] != "http":
            await self._guarded_without_keys(scope, receive, send)
            return
        try:
            needs_key = await self._needs_key()
        except EncoreError as error:
            await error_response(error)(scope, receive, send)
            return
        scope.setdefault("state", {}).update(tenant="", needs_key=needs_key)
        await (self._guarded if needs_key else self._guarded_without_keys)(scope, receive, send)

    async def _needs_key(self) -> bool:
        return bool(self._digests) or (self._directory is not None and await self._directory.has_ever_had_keys())

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                await self._identify(scope)
            except EncoreError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _identify(self, scope: Scope) -> None:
        """Write into the scope who asks. Raises EncoreError for whoever is not let in."""
        state, address = scope["state"], scope["client"][0] if scope.get("client") else ""
        if not state["needs_key"] or scope["path"] in OPEN_PATHS:
            state["client"] = address
            return
        digest, key = await self._find_key(scope, address)
        state["client"] = digest.hex()[:16]
        if key is not None:
            assert self._directory is not None
            await self._directory.note_use(key)
            # A tenant has one share, however many keys.
            state.update(tenant=key.tenant, client=f"tenant {key.tenant}" if key.tenant else state["client"])

    async def _find_key(self, scope: Scope, address: str) -> tuple[bytes, ApiKey | None]:
        """The hash of the key that was sent, with its record where it is stored.

        Raises:
            ApiError, EngineBusy: it is none, or too many were none.
        """
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        # Only what HTTP calls white space: other characters may be bytes of a letter.
        key = key.strip(" \t")
        sent = _digests_of_sent(key)
        has_key = scheme.lower() == "bearer" and bool(key)
        # Every key is compared, so that the time tells nothing about which one was close.
        own = [digest for digest in self._digests if _is_among(digest, sent)]
        matching = [one for one in await self._stored_keys(bool(own)) if _is_among(one.digest, sent)]
        is_valid = bool(own or matching)
        # However it was sent: whoever has a key has one share.
        digest = next(iter([*own, *(one.digest for one in matching), *sent]))
        if has_key:
            await self._refuse_guessing(address, digest, is_valid=is_valid)
        if has_key and is_valid:
            self._known[address, digest] = None
            self._known.move_to_end((address, digest))
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            return digest, matching[0] if matching else None
        raise ApiError(401, "No or no valid API key. Send one as 'Authorization: Bearer KEY'.", code="invalid_api_key")

    async def _stored_keys(self, is_operators: bool) -> Sequence[ApiKey]:
        """Those in the directory; a key of the operator's opens the API also while that cannot be read."""
        try:
            return () if self._directory is None else await self._directory.keys()
        except EncoreError:
            if not is_operators:
                raise
            return ()

    async def _refuse_guessing(self, address: str, digest: bytes, *, is_valid: bool) -> None:
        """Count a wrong key. Raises EngineBusy where too many came, also for a right one that is new from there."""
        if is_valid and (address, digest) in self._known:
            return
        asked = self._attempts.wait_seconds if is_valid else self._attempts.try_begin
        if wait := await asyncio.to_thread(asked, address):
            raise EngineBusy("Too many wrong API keys came from your address.", retry_after_seconds=wait)


class BodyLimit:
    """Stops reading a body that is too large, whatever its header says."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413 itself, or pass the request on with a receiver that counts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        too_large = ApiError(
            413,
            f"The request has more than {self._max_bytes // 2**20} MB. Send a shorter recording.",
            code="too_large",
        )
        claimed = Headers(scope=scope).get("content-length", "0")
        if claimed.isdecimal() and int(claimed) > self._max_bytes:
            await error_response(too_large)(scope, receive, send)
            return
        num_bytes = 0

        async def receive_counted() -> Message:
            """Receive as before, up to the bound."""
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise too_large
            return message

        await self._app(scope, receive_counted, send)


def _digests_of_sent(key: str) -> tuple[bytes, bytes]:
    """Hashes of a key as a header has it, of which nobody says how it is encoded: as UTF-8, and as Latin-1.

    Starlette reads headers as Latin-1, so that this gives the very bytes that were sent.
    """
    return digest_of(key.encode("latin-1")), digest_of(key)


def _is_among(digest: bytes, sent: Sequence[bytes]) -> bool:
    return sum(secrets.compare_digest(digest, one) for one in sent) > 0


def _answer_refusal(refusal: Refusal) -> ASGIApp:
    return error_response(ApiError(refusal.status, refusal.message, code=refusal.code))
