"""Logging in and out: wrong passwords make the next one wait, and the cookie goes to this page alone.

Gradio checks the password and keeps the sessions. Its cookie would go along with requests of other sites
(`SameSite=None`), and its log-out is an address that any link or picture may lead to.
"""

from __future__ import annotations

import asyncio
import math
from http.cookies import SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.web.attempts import Attempts
from ui.words.words import say, spoken_to

LOGIN, LOGOUT = "/login", "/logout"

MAX_FORM_BYTES = 16 * 1024
"""A name and a password."""


class LoginDoor:
    """Stands in front of Gradio's own routes for logging in and out."""

    def __init__(self, app: ASGIApp, attempts: Attempts | None = None) -> None:
        self._app, self._attempts = app, attempts or Attempts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything else on as it is."""
        path = scope["path"].rstrip("/") if scope["type"] == "http" else ""
        if path == LOGOUT:
            await self._log_out(scope, receive, send)
        elif path == LOGIN and scope["method"] == "POST" and scope["app"].auth is not None:
            await self._log_in(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _log_out(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            refusal = JSONResponse({"detail": "Log out with the page's own button."}, 405, headers={"Allow": "POST"})
            await refusal(scope, receive, send)
            return
        await self._app({**scope, "method": "GET"}, receive, send)

    async def _log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = scope["client"][0] if scope.get("client") else ""
        if wait := self._attempts.wait_seconds(address):
            with spoken_to(Headers(scope=scope).get("accept-language")):
                refusal = _too_many(wait)
            await refusal(scope, receive, send)
            return
        # Counted before anything of it is awaited: others of the same address may come meanwhile.
        self._attempts.begin(address)
        body = await _read(receive)
        if body is None:
            large = JSONResponse({"detail": "That is no name and password."}, 413, headers={"Connection": "close"})
            await large(scope, receive, send)
            return
        try:
            form = await Request(scope, _replay(body, receive)).form(max_files=0)
        except HTTPException as error:
            await JSONResponse({"detail": error.detail}, error.status_code)(scope, receive, send)
            return
        name = str(form.get("username", "")).strip()
        hold = self._attempts.hold_seconds(name)
        self._attempts.begin_name(name)
        await asyncio.sleep(hold)

        async def answer(message: Message) -> None:
            """Pass Gradio's answer on, and note whether the password was right."""
            if message["type"] == "http.response.start":
                if message["status"] == 200:
                    self._attempts.succeed(address, name)
                _keep_cookie_here(message, is_tls=scope.get("scheme") == "https")
            await send(message)

        await self._app(scope, _replay(body, receive), answer)


def _too_many(wait_seconds: float) -> JSONResponse:
    seconds = max(1, math.ceil(wait_seconds))
    said = say("login.too_many", seconds=seconds)
    # The connection is not kept: what is sent along is not read.
    return JSONResponse({"detail": said}, 429, headers={"Retry-After": str(seconds), "Connection": "close"})


async def _read(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large, or whoever sent it is gone."""
    body = b""
    while len(body) <= MAX_FORM_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body if len(body) <= MAX_FORM_BYTES else None
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Receive what has been read, once more."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return left.pop() if left else await receive()

    return replayed


def _keep_cookie_here(message: Message, *, is_tls: bool) -> None:
    """Of Gradio's two cookies leave the one that fits the connection, for this site alone."""
    headers = MutableHeaders(scope=message)
    given = headers.getlist("set-cookie")
    del headers["set-cookie"]
    for cookie in given:
        for name, morsel in SimpleCookie(cookie).items():
            if is_tls == name.startswith("access-token-unsecure-"):
                continue
            morsel["samesite"], morsel["httponly"], morsel["secure"] = "Lax", True, is_tls
            headers.append("set-cookie", morsel.OutputString())
