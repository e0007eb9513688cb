"""The page served for a test, by the same calls that `app.py` makes, and how to reach it from Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
from gradio_client import Client, handle_file

from backend.settings import Settings
from backend.studio import Studio
from tests.ui.app_process import free_port
from ui.layout import build_page
from ui.web import server

PATIENCE_SECONDS = 120.0
"""A busy machine may keep an answer waiting for longer than the five seconds that clients allow by themselves."""

SAMPLING = (0.9, 50, 1.0, 1.05)


@dataclass(frozen=True, kw_only=True)
class ServedPage:
    """A running page."""

    address: str
    studio: Studio
    folder: Path
    app: Any

    def routes(self) -> list[tuple[str, str]]:
        """Method and path of all that the page answers to."""
        nested = [route.original_router.routes for route in self.app.routes if hasattr(route, "original_router")]
        routes = [*self.app.routes, *chain.from_iterable(nested)]
        return [(method, route.path) for route in routes for method in getattr(route, "methods", None) or ()]

    def client(self) -> Client:
        """A session of its own."""
        return Client(self.address, verbose=False, httpx_kwargs={"timeout": PATIENCE_SECONDS})

    def fetch(self, html: str) -> bytes:
        """The file of the first player in `html`."""
        path = html.split("<audio controls")[1].split('src="')[1].split('"')[0]
        return httpx.get(self.address + path, timeout=PATIENCE_SECONDS).raise_for_status().content


def speak_arguments(
    text: str,
    *,
    consent: str | None = "own-voice",
    who: str = "Ann Author",
    transcript: str = "",
    way: str = "auto",
    seed: str = "7",
) -> tuple[Any, ...]:
    """What the event behind the Speak button takes, in its order."""
    return (transcript, consent, who, text, way, "auto", seed, *SAMPLING)


def examine(client: Client, *paths: Path) -> str:
    """Give the page these recordings; returns what it says about them."""
    answer = client.predict([handle_file(path) for path in paths], None, api_name="/examine")
    return str(answer[0])


@contextmanager
def serve_page(folder: Path, **options: Any) -> Iterator[ServedPage]:
    """Serve the page with `folder` for its files until the block ends."""
    settings = Settings(port=free_port(), **{"home": folder / "home", **options})
    studio = Studio(settings)
    server.set_environment(folder)
    page = build_page(studio, settings, folder)
    address = server.launch(page, settings)
    try:
        yield ServedPage(address=address, studio=studio, folder=folder, app=page.server_app)
    finally:
        page.close(verbose=False)
