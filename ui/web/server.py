"""Serving the page: who may reach it, what is kept where, and when it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import urlsplit

import gradio as gr

from backend.errors import SettingsError
from backend.settings import Settings
from backend.web.connections import bound_connections
from ui.web.head import build_head
from ui.web.studio_app import StudioApp
from ui.web.theme import FAVICON, STYLESHEETS, build_theme
from ui.words.words import translations

MAX_UPLOAD_BYTES = 100 * 1024 * 1024
"""Five minutes of the largest sensible recording (96 kHz stereo, 24 bit) fit in."""

MAX_QUEUED = 32
"""Events that may wait in the queue; later ones are refused."""

IDLE_LOOK_SECONDS = 0.03
"""Between two looks at a queue in which nothing waits. Gradio's own millisecond costs three percent of a core, day and
night; the delay at the start of a take is inaudible."""


TUNNEL_ADDRESS = "127.0.0.1"
"""Where requests through a share link come from; its tunnel names the address behind it."""


def set_environment(folder: Path, settings: Settings) -> None:
    """Tell Gradio and its server what they read from the environment only; to be called before a page is built."""
    os.environ["GRADIO_TEMP_DIR"] = str(folder)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # By itself uvicorn believes every program on this machine where a request comes from.
    proxies = [*settings.trusted_proxies, *([TUNNEL_ADDRESS] if settings.share else [])]
    os.environ["FORWARDED_ALLOW_IPS"] = ",".join(proxies)


def launch_options(settings: Settings) -> dict[str, Any]:
    """Arguments for `Blocks.launch`. Every door that Gradio would open by itself or by an environment variable is
    named here and closed.

    Raises:
        SettingsError: other machines could reach the page without a password.
    """
    return {
        "server_name": settings.host,
        "server_port": settings.port,
        "auth": settings.credentials(),
        "max_file_size": MAX_UPLOAD_BYTES,
        "strict_cors": True,
        # Gradio's own way to a link waits for it, and says in several lines why there is none.
        "share": False,
        "inbrowser": False,
        "run_history": False,
        "enable_monitoring": False,
        "mcp_server": False,
        "pwa": False,
        "ssr_mode": False,
        # Processes of Gradio's own, which would take uploads without asking who sends them.
        "num_workers": 0,
        "footer_links": [],
        "show_error": False,
        "quiet": True,
        "prevent_thread_lock": True,
        # Means only that Gradio need not ask for the page: it gives up after three seconds, which a busy machine may
        # take, and then wants a public link. That the program answers it has asked without a limit just before.
        "_frontend": False,
        "theme": build_theme(),
        "css_paths": STYLESHEETS,
        "head": build_head(),
        "favicon_path": FAVICON,
        "i18n": translations(),
    }


def launch(page: gr.Blocks, settings: Settings) -> str:
    """Start serving in the background; returns the address of the page.

    Raises:
        SettingsError: see `launch_options`, or the port is taken.
    """
    options = launch_options(settings)
    app = StudioApp(page, settings)
    bound_connections()
    page.queue(max_size=MAX_QUEUED, api_open=False)
    _look_less_often(page)
    try:
        _, address, _ = page.launch(**options, _app=app, app_kwargs={"lifespan": app.uploads.swept})
    except OSError as error:
        raise SettingsError(
            f"Port {settings.port} on {settings.host} cannot be used: another program has it, perhaps another Encore. "
            "Stop that one, or choose another port with --port."
        ) from error
    return str(address)


def serve_name_of(page: gr.Blocks) -> Callable[[str], None]:
    """What lets a page be reached under a link as well."""
    app = cast(StudioApp, page.server_app)
    return lambda link: app.hosts.add(urlsplit(link).netloc)


def _look_less_often(page: gr.Blocks) -> None:
    # Nothing public sets it; under another name in another version it would be set and do nothing, so a test looks.
    page._queue.sleep_when_free = IDLE_LOOK_SECONDS
    page._queue.progress_update_sleep_when_free = IDLE_LOOK_SECONDS


def wait_for_end(page: gr.Blocks) -> None:
    """Serve until Ctrl-C or SIGTERM, then close."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        while True:
            # Any signal that somebody handles ends a pause.
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        page.close(verbose=False)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C does, for service managers."""
    raise KeyboardInterrupt
