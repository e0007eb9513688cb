"""The API as one ASGI application, the same in this process and behind Ray Serve."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI

from backend.serving.api import check_routes, compare_routes, speech_routes, status_routes, take_routes, voice_routes
from backend.serving.api.access import MAX_BODY_BYTES, AccessControl, BodyLimit
from backend.serving.api.allowance import RateLimits
from backend.serving.api.dependencies import ApiContext
from backend.serving.api.errors import install_error_handlers
from backend.serving.api.openapi import install_openapi
from backend.serving.api.threads import enough_quick_threads
from backend.tenants.directory import TenantDirectory
from backend.web.attempts import AddressAttempts
from backend.web.hosts import AllowedHosts

VERSION = "1"


def create_api(
    context: ApiContext,
    *,
    api_keys: Sequence[str] = (),
    directory: TenantDirectory | None = None,
    hosts: AllowedHosts | None = None,
    attempts: AddressAttempts | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """Build the application.

    Args:
        context: who speaks, and with which voices.
        api_keys: the operator's; one of them, or of those in the directory, has to come with each request. Without any
            only this machine is served.
        directory: further keys, and the limits of tenants.
        hosts: names under which it is reached without keys; None for those of this machine alone.
        attempts: where wrong keys are counted; in this process where None.
        max_body_bytes: of one request.
    """
    # No pages for reading the document: they load scripts from the network.
    app = FastAPI(title="Encore", version=VERSION, docs_url=None, redoc_url=None, lifespan=enough_quick_threads)
    app.state.context = context
    for routes in (speech_routes, voice_routes, take_routes, compare_routes, check_routes, status_routes):
        app.include_router(routes.router)
    install_error_handlers(app)
    install_openapi(app, context.max_characters)
    # The last one added is asked first: nobody's body is read before it is clear who sends it.
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    app.add_middleware(RateLimits, directory=directory)
    app.add_middleware(
        AccessControl,
        hosts=hosts or AllowedHosts("localhost"),
        api_keys=tuple(api_keys),
        directory=directory,
        attempts=attempts,
    )
    return app
