"""Who may come in: where a password is asked for, nothing but the way to it is served without it.

Gradio checks most of its routes itself. Some it leaves open, such as those that stream sound or cancel another user's
event, and the next version may add others; here everything is closed that is not named.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = frozenset({"/", "/login", "/favicon.ico", "/robots.txt", "/manifest.json", "/theme.css"})
OPEN_FOLDERS = ("/assets/", "/static/", "/svelte/")
"""The page that asks for the password, with its own scripts, styles and fonts. Nothing of a person's is in them."""

# The page that asks for the password asks for these as well.
OPEN_QUESTIONS = frozenset({"/gradio_api/theme.css", "/gradio_api/startup-events", "/gradio_api/user"})


class LoginGuard:
    """Lets a request in that brings the cookie of a user who has logged in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may come in; answer 401 to the rest."""
        if scope["type"] == "lifespan" or is_open(scope["path"]) or _has_logged_in(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            answer = JSONResponse({"detail": "Log in first."}, status_code=401)
            await answer(scope, receive, send)


def is_open(path: str) -> bool:
    """Whether everybody may ask for it."""
    plain = path if path == "/" else path.rstrip("/")
    return plain in OPEN_PATHS | OPEN_QUESTIONS or (path.startswith(OPEN_FOLDERS) and ".." not in path)


def _has_logged_in(scope: Scope) -> bool:
    app: Any = scope["app"]  # Gradio's App, which keeps the tokens it has given out
    if app.auth is None:
        return True
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(Headers(scope=scope).get("cookie", ""))
    except CookieError:
        return False
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    return any(name in cookies and cookies[name].value in app.tokens for name in names)
