"""What fine-tunes take on the disk, and the trash: to free the one, and to restore or empty the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import gradio as gr
from gradio.blocks import Block
from markupsafe import Markup

from backend.errors import EncoreError
from backend.store.errors import TrashBusy, TrashNotFound
from backend.store.trash import Deleted
from ui.context import PageContext
from ui.events import Update, bind
from ui.fields import build_unseen
from ui.html.messages import failure, says
from ui.html.words import deleted_name
from ui.tabs.voices.order import Order
from ui.tabs.voices.render import RunSpace, space_html
from ui.words.words import say


class SpacePart:
    """Shown at the foot of the tab, and whenever something was deleted or restored."""

    def __init__(self, context: PageContext, browser: gr.State) -> None:
        """Lay it out; `browser` is whose takes in the trash may be told."""
        self.context, self.browser = context, browser
        script = Path(__file__).with_name("orders.js").read_text(encoding="utf-8")
        self.listed = gr.HTML("", elem_id="space", js_on_load=script, apply_default_css=False)
        self.order = build_unseen("space-order")

    def connect(self, refresh: Callable[[], Update], outputs: Sequence[Block]) -> None:
        """Connect its buttons; `refresh` shows the voices again, which may have come back."""

        def do(order: str, browser: str) -> Update:
            """Free, restore or empty what was pressed; the answer stands above both lists."""
            if not order:
                return {}
            pressed = Order.read(order)
            try:
                answer = self._do(pressed.do, pressed.id, browser)
            except EncoreError as error:
                answer = failure(error)
            return {self.listed: self.html(browser, answer), **refresh()}

        given = {"order": self.order, "browser": self.browser}
        bind(self.order.change, do, given, [self.listed, *outputs], api="change_space")

    def html(self, browser: str, answer: Markup | str = "") -> Markup:
        """The lists as they are. Raises StoreError."""
        runs = self.context.studio.runs
        listed = [
            RunSpace(
                id=run.id,
                name=run.voice,
                when=time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_at)),
                num_bytes=runs.num_bytes(run.id),
                is_active=run.state.is_active,
            )
            for run in runs.list()
        ]
        return space_html(listed, self._trashed(browser), answer)

    def _trashed(self, browser: str) -> list[Deleted]:
        """What this visitor may see: not the takes of other browsers."""
        return [one for one in self.context.studio.trash.list() if one.owner in ("", browser)]

    def _do(self, what: str, key: str, browser: str) -> Markup:
        trash = self.context.studio.trash
        if what == "free":
            deleted = self.context.studio.runs.delete(key)
            return says("", say("voices.deleted", name=deleted_name(deleted)))
        if what == "restore":
            if key not in {one.id for one in self._trashed(browser)}:
                raise TrashNotFound(say("voices.not_in_trash"))
            return says("good", say("voices.is_back", name=deleted_name(trash.restore(key))))
        if what == "empty":
            for one in self._trashed(browser):
                # Another page may do the same.
                with suppress(TrashNotFound, TrashBusy):
                    trash.purge(one.id)
        return says("good", say("voices.emptied"))
