"""What is done to one clip in its row: its text, its verdict, its cut, and a second hearing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import gradio as gr
from pydantic import BaseModel, ConfigDict, ValidationError

from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import ClipRow, DatasetView
from backend.errors import EncoreError
from ui.context import PageContext
from ui.events import Update, bind, session_of
from ui.fields import FormIncomplete, build_unseen
from ui.html.messages import reason, task_line
from ui.tabs.dataset.clip_rows import Answer
from ui.tabs.dataset.clips import ClipsPart
from ui.words.words import say

Deed = Literal["text", "restore", "style", "accepted", "rejected", "judged", "cut", "uncut", "reference", "listen"]

DONE: dict[Deed, str] = {
    "text": "data.text_saved",
    "restore": "data.text_restored",
    "style": "data.style_saved",
    "cut": "data.cut_moved",
    "uncut": "data.cut_restored",
    "reference": "data.reference_chosen",
}
"""What is said of it; a verdict speaks for itself."""


class ClipDeed(BaseModel):
    """What a row asks for; `number` tells two of the same apart."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    do: Deed
    clip: str
    text: str = ""
    start: float = 0.0
    end: float = 0.0
    number: int = 0


class ClipEditor:
    """Does what the rows of `clips` ask for, through a field that only they fill in."""

    def __init__(self, clips: ClipsPart) -> None:
        self.clips = clips
        self.deed = build_unseen("clip-edit")
        outputs = [*clips.listing, *clips.followed]
        asked = {**clips.look, "deed": self.deed}
        # Gradio's `input` does not fire for what scripts fill in; the number in it makes every deed a change.
        bind(self.deed.change, self._do, asked, outputs, api="edit_clip", trigger_mode="multiple")

    @property
    def _context(self) -> PageContext:
        return self.clips.context

    def _do(
        self, name: str | None, wanted: str, sort: str, page: float | None, deed: str, request: gr.Request
    ) -> Iterator[Update]:
        """Edit in the background, then show the clips as they are now; a refusal appears in the row."""
        try:
            asked = ClipDeed.model_validate_json(deed)
        except ValidationError:
            return
        if asked.do == "listen":
            yield self.clips.start_listening(name, [asked.clip])
            return
        words = say(DONE[asked.do]) if asked.do in DONE else ""
        answer = Answer(tone="good", words=words) if words else None
        try:
            if not name:
                raise FormIncomplete(say("data.choose_first"))
            # In the background: in a large set, an edit that moves its centre takes a moment.
            yield from self._context.follow(
                f"edit {session_of(request)} {asked.number}",
                say("data.reviewing"),
                lambda _: self.apply(name, asked),
                lambda state: {self.clips.task: task_line(state)} if state.seconds_so_far > 1 else {},
            )
        except EncoreError as error:
            answer = Answer(tone="bad", words=reason(error))
        answers = {asked.clip: answer} if answer is not None else {}
        updated = self.clips.update(self.clips.view(name), wanted, sort, page, answers)
        yield {**updated, self.clips.task: self.clips.follow(name)[self.clips.task]}

    def apply(self, name: str, asked: ClipDeed) -> None:
        """Do it. Raises EncoreError."""
        datasets, key = self._context.studio.datasets, asked.clip
        match asked.do:
            case "text":
                datasets.edit_text(name, key, asked.text)
            case "restore":
                datasets.edit_text(name, key, None)
            case "style":
                datasets.set_styles(name, {key: asked.text})
            case "accepted" | "rejected":
                datasets.overrule(name, key, Verdict(asked.do))
            case "judged":
                datasets.overrule(name, key, None)
            case "cut":
                datasets.move_cut(name, key, max(0.0, asked.start), asked.end)
            case "uncut":
                clip = find_clip(self.clips.view(name), key)
                if clip is not None:
                    span = clip.details.original.span
                    datasets.move_cut(name, key, span.start_seconds, span.end_seconds)
            case "reference":
                datasets.choose_reference(name, key)


def find_clip(view: DatasetView | None, key: str | None) -> ClipRow | None:
    """A clip by its key, if there is one."""
    return next((clip for clip in view.clips if clip.key == key), None) if view is not None else None
