"""Who may use the API, from where, and how much may be sent at once: plain ASGI, in front of everything else."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.serving.api.errors import ApiError, error_response

MAX_BODY_BYTES = 64 * 2**20
"""Five minutes of 96 kHz mono at 24 bit are 86 MB and nobody's speech; the same at 48 kHz are 43 MB."""

OPEN_PATHS = frozenset({"/healthz"})
"""For those who watch over the process; they learn nothing there."""


class AccessControl:
    """Lets in whoever has a key; without keys only this machine, and no web page that the browser happens to show."""

    def __init__(self, app: ASGIApp, *, api_keys: Sequence[str] = ()) -> None:
        self._app = app
        # Hashes of one length: comparing them in constant time tells nothing about the keys.
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 403 itself, or pass the request on."""
        if scope["type"] == "http" and (refusal := self._find_refusal(scope)) is not None:
            await error_response(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        if self._digests:
            if scope["path"] in OPEN_PATHS or self._has_key(headers):
                return None
            return ApiError(
                401, "No or no valid API key. Send one as 'Authorization: Bearer KEY'.", code="invalid_api_key"
            )
        # A page from elsewhere can send requests to this machine, under a name of its own that leads here.
        host, origin = headers.get("host", ""), headers.get("origin")
        if not _is_loopback(urlsplit(f"//{host}").hostname) or (
            origin is not None and not _is_loopback(urlsplit(origin).hostname)
        ):
            return ApiError(
                403,
                "Without API keys only programs on this machine are served. Set ENCORE_API_KEYS to let others in.",
                code="local_only",
            )
        return None

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        # Every key is compared, so that the time tells nothing about which one was close.
        found = [secrets.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == "bearer" and any(found)


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


def _is_loopback(host: str | None) -> bool:
    if not host:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
