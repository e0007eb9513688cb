"""What Ray Serve's proxies, which take the requests, are told. Loads nothing large: they start again in a hurry."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.errors import EncoreError
from backend.serving.api.errors import error_response
from backend.serving.api.events import SSE_MEDIA_TYPE, error_event
from backend.serving.errors import EngineBusy, EngineClosed
from backend.web.connections import bound_connections

CHECK_SECONDS = 1.0
"""Between two looks at a proxy. Ray's own ten make half a minute of it until one that has died is replaced: it counts
three looks that fail."""

PATIENCE_SECONDS = 20.0
"""A proxy that answers late, three times in a row, is ill; as patient as with replicas."""

_PLAIN = b"text/plain"
_logger = logging.getLogger(__name__)


def environment(trusted_proxies: Sequence[str]) -> dict[str, str]:
    """Variables for Serve's controller, from which its proxies inherit them.

    Args:
        trusted_proxies: addresses of proxies in front of them that are believed where a request comes from.
    """
    return {
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": f"{__name__}.configure",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": str(CHECK_SECONDS),
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": str(PATIENCE_SECONDS),
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(PATIENCE_SECONDS),
        "FORWARDED_ALLOW_IPS": ",".join(trusted_proxies),
    }


def configure() -> list[Middleware]:
    """Called by each proxy before it listens; returns the middleware to add."""
    bound_connections()
    return [Middleware(LossTeller)]


class LossTeller:
    """Says in the API's error form what Ray's proxy says in plain text, or not at all.

    If the process that answers a request is lost, the proxy ends without an answer, or in the middle of one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, whatever becomes of the process behind the proxy."""
        # What lies under /-/ is the proxy's own, for Ray's health checks.
        if scope["type"] != "http" or scope["path"].startswith("/-/"):
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, receive, send)
        try:
            await self._app(scope, receive, answer.pass_on)
        except Exception:
            _logger.exception("a request failed in the proxy")
        await answer.complete()


class _Answer:
    """One answer on its way to the client."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._is_over = False
        self._media_type: bytes | None = None

    async def pass_on(self, message: Message) -> None:
        """Send a part of it, or an error instead of Ray's words."""
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            self._media_type = headers.get(b"content-type", b"")
            # Unlike those of applications, among which may be others than Encore, Ray's own answers tell no length.
            is_rays = self._media_type.startswith(_PLAIN) and b"content-length" not in headers
            if message["status"] >= 400 and is_rays:
                await self._refuse(_error_of(message["status"], headers.get(b"retry-after")))
                return
        elif message["type"] == "http.response.body":
            self._is_over = not message.get("more_body", False)
        await self._send(message)

    async def complete(self) -> None:
        """Say that it was broken off, wherever something can still be said.

        Sound without events has no place for it: the server breaks its connection instead of ending it.
        """
        if self._is_over:
            return
        error = EngineClosed("The process that answered has stopped. Ask again.")
        if self._media_type is None:
            await self._refuse(error)
        elif self._media_type.startswith(SSE_MEDIA_TYPE.encode()):
            self._is_over = True
            await self._send({"type": "http.response.body", "body": error_event(error), "more_body": False})

    async def _refuse(self, error: EncoreError) -> None:
        self._is_over = True
        await error_response(error)(self._scope, self._receive, self._send)


def _error_of(status: int, retry_after: bytes | None) -> EncoreError:
    if status == 429:
        return EngineBusy("All places are taken and the queue is full.", retry_after_seconds=float(retry_after or b"1"))
    # Without a route, or with one to a deployment of which no process is left.
    return EngineClosed("The speech application is not ready. Ask again in a moment.")
