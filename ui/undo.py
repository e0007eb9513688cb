"""What was just deleted, where it was deleted: to bring it back, or to remove it for good at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gradio as gr
from gradio.blocks import Block

from backend.store.trash import Deleted
from ui.context import PageContext
from ui.events import HIDE, SHOW, Inputs, Update, bind
from ui.html.messages import NOTHING, says
from ui.html.templates import html
from ui.html.words import deleted_name
from ui.words.words import say, word

DAYS = (
    "fields.monday",
    "fields.tuesday",
    "fields.wednesday",
    "fields.thursday",
    "fields.friday",
    "fields.saturday",
    "fields.sunday",
)


class Undo:
    """A line with two buttons, hidden until something was deleted; the last deletion counts.

    Attributes:
        shown: what `offer` and `hide` change.
    """

    def __init__(self, context: PageContext, name: str) -> None:
        """Lay it out; `name` is part of the ids of its elements."""
        self.context, self._name = context, name
        with gr.Row(visible=False, elem_id=f"undo-{name}", elem_classes=["undo"]) as self.row:
            self.said = gr.HTML(NOTHING, elem_id=f"undo-{name}-said")
            self.back = gr.Button(word("voices.undo"), min_width=100, elem_id=f"undo-{name}-back")
            self.gone = gr.Button(word("voices.for_good"), variant="stop", min_width=140, elem_id=f"undo-{name}-gone")
        self.deleted = gr.State(None)
        self.shown: list[Block] = [self.row, self.said, self.deleted]

    def offer(self, deleted: Deleted, key: str = "fields.deleted") -> Update:
        """Show what was deleted; the words of `key` say what was done to it, and until when it is kept."""
        until = deleted.kept_until.astimezone()
        when = f"{say(DAYS[until.weekday()])} {until:%H:%M}"
        said = html("<strong>{}</strong> {}", deleted_name(deleted), say(key, when=when))
        return {self.row: SHOW, self.said: says("", said), self.deleted: deleted}

    def hide(self) -> Update:
        """Take the line away."""
        return {self.row: HIDE, self.said: NOTHING, self.deleted: None}

    def connect(self, restored: Callable[..., Update], inputs: Inputs, outputs: Sequence[Block]) -> None:
        """Connect its buttons; `restored` brings the thing back, is given it as `deleted`, and shows it."""
        given = {**inputs, "deleted": self.deleted}

        def undo(deleted: Deleted | None, **fields: object) -> Update:
            """Bring it back, and take the line away."""
            return {**self.hide(), **restored(deleted=deleted, **fields)} if deleted is not None else {}

        bind(self.back.click, undo, given, [*self.shown, *outputs], api=f"undo_{self._name}".replace("-", "_"))
        bind(
            self.gone.click,
            self._purge,
            {"deleted": self.deleted},
            self.shown,
            api=f"purge_{self._name}".replace("-", "_"),
        )

    def _purge(self, deleted: Deleted | None) -> Update:
        if deleted is not None:
            self.context.studio.trash.purge(deleted.id)
        return self.hide()
