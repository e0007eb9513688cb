"""The list of kept takes, as one browser sees it: its own, those of earlier visits and starts included."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

import gradio as gr

from backend.store.trash import Deleted
from backend.takes.errors import TakeNotFound
from ui.context import PageContext
from ui.events import Update, bind
from ui.html.takes import take_list
from ui.undo import Undo
from ui.words.words import say

API_LIST = ""
"""The list without an owner."""

MAX_SHOWN = 100
"""Each has a player; older ones are kept all the same, and come up when newer ones are deleted."""


class TakeList:
    """Takes with players, each with a button to delete it."""

    def __init__(self, context: PageContext, elem_id: str, empty: str) -> None:
        """Lay the list out; it is filled when it is first looked at. `empty` is the word for a list without takes."""
        self.context, self._empty = context, empty
        script = Path(__file__).with_name("take_buttons.js").read_text(encoding="utf-8")
        self.undo = Undo(context, elem_id)
        self.listed = gr.HTML(take_list([], say(empty)), elem_classes=["takes"], elem_id=elem_id, js_on_load=script)

    def html(self, owner: str) -> str:
        """The takes of one browser, the newest first. Raises StoreError."""
        takes = self.context.studio.takes.list(owner, MAX_SHOWN)
        places = [(take, self.context.files.place(take.path)) for take in takes]
        return take_list([(take, place) for take, place in places if place is not None], say(self._empty))

    def delete(self, take_id: str, owner: str) -> Update:
        """Put one take into the trash, and its file out of reach; shows what is left."""
        offered: Update = {}
        # It may have been deleted on another page of the same browser.
        with suppress(TakeNotFound):
            path = self.context.studio.takes.get(take_id).path
            offered = self.undo.offer(self.context.studio.takes.delete(take_id, owner))
            self.context.files.forget(path)
        return {self.listed: self.html(owner), **offered}

    def restore(self, deleted: Deleted, name: str = "") -> Update:
        """Bring a take back into its list."""
        self.context.studio.trash.restore(deleted.id)
        return {self.listed: self.html(name)}


class OwnTakes(TakeList):
    """The takes of this browser, which has given itself a name: drawn at random and known to nobody else.

    Attributes:
        browser: that name; a visitor whose browser stores nothing has one for the visit.
        came_back: what happens once the name is known.
    """

    def __init__(self, context: PageContext) -> None:
        super().__init__(context, "takes", "speak.no_takes")
        self._remembered = gr.BrowserState("", storage_key="encore-browser", secret="encore")
        self.browser = gr.State("")
        kept = [self._remembered, self.browser, self.listed]
        self.came_back = bind(context.page.load, self._come_back, {"name": self._remembered}, kept, quick=True)
        named = {"name": self.browser}
        bind(self.listed.click, self._delete_pressed, named, [self.listed, *self.undo.shown], quick=True)
        self.undo.connect(self.restore, named, [self.listed])

    def _come_back(self, name: str | None) -> Update:
        known = name if isinstance(name, str) and name else secrets.token_urlsafe(16)
        return {self._remembered: known, self.browser: known, self.listed: self.html(known)}

    def _delete_pressed(self, name: str, event: gr.EventData) -> Update:
        return {} if event.part else self.delete(str(event.take), name)


class ApiTakes(TakeList):
    """What the API spoke, listed whenever the tab is opened."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        super().__init__(context, "api-takes", "voices.no_api_takes")
        bind(
            tab.select, lambda: {self.listed: self.html(API_LIST)}, None, self.listed, api="list_api_takes", quick=True
        )
        bind(self.listed.click, self._delete_pressed, None, [self.listed, *self.undo.shown], quick=True)
        self.undo.connect(self.restore, {}, [self.listed])

    def _delete_pressed(self, event: gr.EventData) -> Update:
        return {} if event.part else self.delete(str(event.take), API_LIST)
