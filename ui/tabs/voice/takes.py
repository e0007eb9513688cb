"""Takes that are kept, as one browser sees them: its own, those of earlier visits and starts included."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from backend.takes.errors import TakeNotFound
from backend.takes.take import Take
from ui.context import PageContext
from ui.errors import shows_errors
from ui.html import base as render

SCRIPT = Path(__file__).with_name("take_buttons.js")
API_LIST = ""
"""The list without an owner."""

NO_API_TAKES = "What programs let Encore speak through its API is kept here."
MAX_SHOWN = 100
"""Each has a player; older ones are kept all the same, and come up when newer ones are deleted."""


@dataclass(frozen=True)
class KeptTakes:
    """Lists takes with players, and deletes them."""

    context: PageContext

    def html(self, browser: str) -> str:
        """The takes of one browser, the newest first. Raises StoreError."""
        takes = self.context.studio.takes.list(browser, MAX_SHOWN)
        places = [(take, self.context.files.place(take.path)) for take in takes]
        return render.take_list([(take, place) for take, place in places if place is not None])

    def delete(self, take_id: str, browser: str) -> str:
        """Remove one, wherever it can still be fetched from; returns what is left."""
        self.forget(self.context.studio.takes.delete(take_id, browser))
        return self.html(browser)

    def api_html(self) -> str:
        """What the API spoke."""
        return (
            self.html(API_LIST) if self.context.studio.takes.list(API_LIST, 1) else render.take_list([], NO_API_TAKES)
        )

    def delete_api_take(self, take_id: str) -> str:
        """Remove one of those."""
        self.forget(self.context.studio.takes.delete(take_id, API_LIST))
        return self.api_html()

    def forget(self, take: Take) -> None:
        """Stop serving the file of a take that is deleted."""
        self.context.files.forget(take.path)


def build_take_list(elem_id: str = "takes") -> gr.HTML:
    """Lay it out; filled when it is first looked at."""
    script = SCRIPT.read_text(encoding="utf-8")
    return gr.HTML(render.take_list([]), elem_classes=["takes"], elem_id=elem_id, js_on_load=script)


def connect_take_list(context: PageContext, listed: gr.HTML) -> gr.State:
    """Make the list come back with its browser; returns the name that the browser has given itself.

    The name is drawn at random and known to nobody else. A visitor who keeps nothing has one for the visit.
    """
    kept = KeptTakes(context)
    remembered = gr.BrowserState("", storage_key="encore-browser", secret="encore")
    browser = gr.State("")

    def come_back(name: str | None, request: gr.Request) -> list[Any]:
        known = name if isinstance(name, str) and name else secrets.token_urlsafe(16)
        return [known, known, kept.html(known)]

    def delete(name: str, event: gr.EventData) -> Any:
        """Delete the take whose button was pressed."""
        try:
            return kept.delete(str(event.take), name)
        except TakeNotFound:
            # Deleted on another page of the same browser.
            return kept.html(name)

    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    context.page.load(shows_errors(come_back), remembered, [remembered, browser, listed], **quiet)
    listed.click(shows_errors(delete), browser, listed, **quiet)
    return browser


def connect_api_takes(context: PageContext, listed: gr.HTML, tab: gr.Tab) -> None:
    """Show what the API spoke whenever the tab is opened."""
    kept = KeptTakes(context)

    def delete(event: gr.EventData) -> str:
        """Delete the API's take whose button was pressed."""
        try:
            return kept.delete_api_take(str(event.take))
        except TakeNotFound:
            return kept.api_html()

    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
    tab.select(
        shows_errors(kept.api_html), None, listed, api_name="list_api_takes", api_visibility="undocumented", **quiet
    )
    listed.click(shows_errors(delete), None, listed, api_visibility="private", **quiet)
