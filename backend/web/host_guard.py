"""Turns away what web pages of other sites send, before any of it is read: plain ASGI, in front of all else."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.web.hosts import AllowedHosts, Authority, parse_authority, parse_origin


class Refusal(NamedTuple):
    """Why a request is turned away."""

    status: int
    message: str
    code: str


Answer = Callable[[Refusal], ASGIApp]
"""The server's own form of a refusal."""


class HostGuard:
    """Lets in requests under a name that is served, from pages of this server and from programs, which have no page."""

    def __init__(
        self, app: ASGIApp, *, hosts: AllowedHosts | None, answer: Answer, own_origin_only: bool = True
    ) -> None:
        """Guard `app`.

        Args:
            app: what is behind the guard.
            hosts: names that are served; None for any, where each request has to prove by itself who sends it.
            answer: makes a response of a refusal.
            own_origin_only: let pages of this very server in and of no other; otherwise those of all `hosts`.
        """
        self._app, self._hosts, self._answer, self._own_origin_only = app, hosts, answer, own_origin_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] == "lifespan" or (refusal := self.find_refusal(Headers(scope=scope))) is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(refusal)(scope, receive, send)

    def find_refusal(self, headers: Headers) -> Refusal | None:
        """Why a request is refused; None if it is let in."""
        given, origins = headers.getlist("host"), headers.getlist("origin")
        host = parse_authority(given[0]) if len(given) == 1 and given[0] else None
        if len(given) != 1 or (given[0] and host is None):
            return Refusal(400, "The Host header is missing or malformed. Send one name of this server.", "bad_host")
        origin = parse_origin(origins[0]) if len(origins) == 1 else None
        if origins and origin is None and origins != ["null"]:
            return Refusal(400, "The Origin header is malformed. Leave it out, or send one origin.", "bad_origin")
        if self._hosts is None:
            return None
        if host is None or not self._hosts.serves(host):
            return Refusal(
                403,
                f"{given[0][:100] or 'A request without a host'} is no name of this server. Ask for localhost, or let "
                "its operator add the name to ENCORE_ALLOWED_HOSTS.",
                "host_not_allowed",
            )
        # An image or a script of another page comes without an Origin; a link that is followed is a navigation.
        is_foreign = not origins and (
            headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
        )
        if is_foreign or (origins and not self._is_let_in(origin, host, self._hosts)):
            return Refusal(
                403,
                "Pages of other sites may not use Encore. Open its own page; behind a proxy, the page's name has to be "
                "in ENCORE_ALLOWED_HOSTS.",
                "origin_not_allowed",
            )
        return None

    def _is_let_in(self, origin: Authority | None, host: Authority, hosts: AllowedHosts) -> bool:
        if origin is None:
            return False
        return hosts.is_own(origin, host) or (not self._own_origin_only and hosts.serves(origin))
