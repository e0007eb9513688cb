"""Who may use the API, from where, and how much may be sent at once: plain ASGI, in front of everything else."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.errors import EncoreError
from backend.serving.api.errors import ApiError, error_response
from backend.serving.errors import EngineBusy
from backend.web.attempts import MAX_ENTRIES as MAX_KNOWN
from backend.web.attempts import Attempts
from backend.web.host_guard import HostGuard, Refusal
from backend.web.hosts import AllowedHosts

MAX_BODY_BYTES = 64 * 2**20
"""Five minutes of 96 kHz mono at 24 bit are 86 MB and nobody's speech; the same at 48 kHz are 43 MB."""

OPEN_PATHS = frozenset({"/healthz"})
"""For those who watch over the process; they learn nothing there."""


class AccessControl:
    """Lets in whoever has a key; without keys only this machine, and no web page that the browser happens to show.

    Whoever is let in has a name in `scope["state"]["client"]`: the key, hashed, or else the address.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: AllowedHosts, api_keys: Sequence[str] = (), attempts: Attempts | None = None
    ) -> None:
        self._app, self._attempts = app, attempts or Attempts()
        # Hashes of one length: comparing them in constant time tells nothing about the keys.
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in api_keys)
        # Which key is let in from where even while others guess there; bounded.
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        # A page has no key unless it was given one, so with keys it does not matter which name leads here.
        self._guarded = HostGuard(
            self._let_in, hosts=None if api_keys else hosts, answer=_answer_refusal, own_origin_only=False
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 401, 403 or 429 itself, or pass the request on."""
        await self._guarded(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            address = scope["client"][0] if scope.get("client") else ""
            found = self._find_client(scope, address)
            if isinstance(found, EncoreError):
                await error_response(found)(scope, receive, send)
                return
            scope.setdefault("state", {})["client"] = found
        await self._app(scope, receive, send)

    def _find_client(self, scope: Scope, address: str) -> str | EncoreError:
        if not self._digests or scope["path"] in OPEN_PATHS:
            return address
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        # Every key is compared, so that the time tells nothing about which one was close.
        is_valid = sum(secrets.compare_digest(digest, own) for own in self._digests) > 0
        has_key = scheme.lower() == "bearer" and bool(key.strip())
        wait = self._attempts.wait_seconds(address) if has_key else 0.0
        if wait and not (is_valid and (address, digest) in self._known):
            return EngineBusy("Too many wrong API keys came from your address.", retry_after_seconds=wait)
        if has_key and is_valid:
            self._known[address, digest] = None
            self._known.move_to_end((address, digest))
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            return digest.hex()[:16]
        if has_key:
            self._attempts.begin(address)
        return ApiError(401, "No or no valid API key. Send one as 'Authorization: Bearer KEY'.", code="invalid_api_key")


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


def _answer_refusal(refusal: Refusal) -> ASGIApp:
    return error_response(ApiError(refusal.status, refusal.message, code=refusal.code))
