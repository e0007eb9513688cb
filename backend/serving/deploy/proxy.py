"""What Ray Serve's proxies, which take the requests, are told through their environment."""

from __future__ import annotations

import os

from starlette.middleware import Middleware

from backend.serving.settings import ServeSettings
from backend.web.connections import bound_connections


def set_environment(settings: ServeSettings) -> None:
    """Prepare a Ray that is to be started here; a cluster that is joined has its own environment."""
    os.environ["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] = f"{__name__}.configure"
    os.environ["FORWARDED_ALLOW_IPS"] = ",".join(settings.trusted_proxies)


def configure() -> list[Middleware]:
    """Called by each proxy before it listens; returns the middleware to add."""
    bound_connections()
    return []
