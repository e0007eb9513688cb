"""The page served for a test, by the same calls that `app.py` makes, and how to reach it from Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
from gradio_client import Client, handle_file

from backend.settings import Settings
from backend.studio import Studio
from tests.ui.app_process import free_port
from ui.layout import build_page
from ui.web import server

PATIENCE_SECONDS = 120.0
"""A busy machine may keep an answer waiting for longer than the five seconds that clients allow by themselves."""


class Session:
    """One visitor, who calls the page's events with inputs by name and reads its answers by the id of the component."""

    def __init__(self, address: str, page: gr.Blocks) -> None:
        self.client = Client(address, verbose=False, httpx_kwargs={"timeout": PATIENCE_SECONDS})
        self._events = {fn.api_name: fn for fn in page.fns.values() if fn.api_visibility != "private"}
        self.session_hash = self.client.session_hash

    def call(self, api: str, **inputs: Any) -> dict[str, Any]:
        """What the event changes at its end; inputs that are not given are as the page has them at first."""
        return self._named(api, self.client.predict(*self.data(api, inputs), api_name=f"/{api}"))

    def submit(self, api: str, **inputs: Any) -> Iterator[dict[str, Any]]:
        """The same, each time something changes."""
        job = self.client.submit(*self.data(api, inputs), api_name=f"/{api}")
        return (self._named(api, update) for update in job)

    def data(self, api: str, inputs: dict[str, Any], *, with_states: bool = False) -> list[Any]:
        """The inputs in the order of the event; values that the session keeps are left to it."""
        event = self._events[api]
        names = dict(zip(event.input_parameter_names, event.inputs, strict=True))
        assert inputs.keys() <= names.keys(), f"{api} takes {list(names)}"
        return [
            inputs[name] if name in inputs else _initial(block)
            for name, block in names.items()
            if with_states or not block.skip_api
        ]

    def number(self, api: str) -> int:
        """The event's index in the page's configuration."""
        return next(i for i, fn in enumerate(self.client.config["dependencies"]) if fn["api_name"] == api)

    def close(self) -> None:
        """Leave the page."""
        self.client.close()

    def _named(self, api: str, answer: Any) -> dict[str, Any]:
        shown = [block for block in self._events[api].outputs if not block.skip_api]
        names = [block.elem_id or type(block).__name__.lower() for block in shown]
        return dict(zip(names, answer if len(names) != 1 else [answer], strict=True)) if names else {}


def _initial(block: Any) -> Any:
    value = None if block.skip_api else getattr(block, "value", None)
    return "" if value is None and isinstance(block, gr.Textbox) else value


@dataclass(frozen=True, kw_only=True)
class ServedPage:
    """A running page."""

    address: str
    studio: Studio
    folder: Path
    blocks: gr.Blocks

    @property
    def app(self) -> Any:
        """What answers to requests."""
        return self.blocks.server_app

    def routes(self) -> list[tuple[str, str]]:
        """Method and path of all that the page answers to."""
        nested = [route.original_router.routes for route in self.app.routes if hasattr(route, "original_router")]
        routes = [*self.app.routes, *chain.from_iterable(nested)]
        return [(method, route.path) for route in routes for method in getattr(route, "methods", None) or ()]

    def wait_for_loading(self) -> None:
        """Until the model that was asked for is there, or cannot be."""
        deadline = time.monotonic() + 120
        while self.studio.loading is not None and self.studio.loading.is_running:
            assert time.monotonic() < deadline, "the model is still being loaded"
            time.sleep(0.05)

    def session(self) -> Session:
        """A session of its own."""
        return Session(self.address, self.blocks)

    def fetch(self, html: str) -> bytes:
        """The file of the first play button in `html`."""
        path = html.split('data-play="')[1].split('"')[0]
        return httpx.get(self.address + path, timeout=PATIENCE_SECONDS).raise_for_status().content


def speak(session: Session, text: str, **changes: Any) -> dict[str, Any]:
    """Speak with a form that is filled in; `changes` are other values of its fields."""
    return session.call("speak", **speak_form(text, **changes))


def speak_form(text: str, **changes: Any) -> dict[str, Any]:
    """What a person fills in at least."""
    return {"text": text, "statement": "own-voice", "who": "Ann Author", "seed": "7"} | changes


def examine(session: Session, *paths: Path) -> str:
    """Give the page these recordings; returns what it says about them."""
    return str(session.call("examine", files=[handle_file(path) for path in paths])["verdict"])


@contextmanager
def serve_page(folder: Path, **options: Any) -> Iterator[ServedPage]:
    """Serve the page with `folder` for its files until the block ends."""
    settings = Settings(port=free_port(), **{"home": folder / "home", **options})
    studio = Studio(settings)
    server.set_environment(folder, settings)
    page = build_page(studio, settings, folder)
    address = server.launch(page, settings)
    try:
        yield ServedPage(address=address, studio=studio, folder=folder, blocks=page)
    finally:
        page.close(verbose=False)
