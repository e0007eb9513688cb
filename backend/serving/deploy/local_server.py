"""The API and its engines in one process: what a laptop needs."""

from __future__ import annotations

import socket

import uvicorn

from backend.serving.deploy.factory import build_api, build_local_service
from backend.serving.errors import ServingError
from backend.serving.settings import ServeSettings

GRACE_SECONDS = 10
"""How long speeches may go on after an interruption."""


def serve_locally(settings: ServeSettings) -> None:
    """Serve until interrupted.

    Raises:
        EncoreError: the port is taken, or the model cannot be loaded.
    """
    # Taken first: a model is loaded for nothing where nobody can be answered.
    listener = _listen(settings.host, settings.port)
    with listener:
        service = build_local_service(settings)
        try:
            config = uvicorn.Config(
                build_api(settings, service),
                log_level="warning",
                timeout_graceful_shutdown=GRACE_SECONDS,
                server_header=False,
            )
            address, port = listener.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            print(f"Speech API: http://{shown}:{port}/v1 (Ctrl+C ends it)", flush=True)
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            service.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ServingError(
            f"Port {port} on {host} cannot be listened on: {error.strerror}. Choose another one with --port."
        ) from error
