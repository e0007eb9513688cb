"""One clip of a dataset: heard, its text corrected, its verdict overruled, its cut moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.blocks import Block

from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import ClipRow, DatasetView
from backend.errors import EncoreError
from ui.events import HIDE, SHOW, Inputs, Trigger, Update, bind, session_of
from ui.fields import FormIncomplete
from ui.html.messages import NOTHING, failure, task_line
from ui.tabs.dataset.clips import ClipsPart
from ui.tabs.dataset.render import clip_card, numbers_of

if TYPE_CHECKING:
    from backend.dataset.datasets import Datasets

AS_JUDGED = "as judged"
VERDICTS = [("As judged", AS_JUDGED), ("Accept", Verdict.ACCEPTED.value), ("Reject", Verdict.REJECTED.value)]
SHOW_TASK = """(...values) => {
  document.getElementById("dataset-task").scrollIntoView({ behavior: "smooth", block: "center" });
  return values;
}"""
"""What is heard stands above the table, out of sight."""


class ClipEditor:
    """Edits the clip that is chosen below the table; built inside the section of its table."""

    def __init__(self, clips: ClipsPart) -> None:
        self.clips = clips
        with clips.section, gr.Column(visible=False) as self.body:
            self.card = gr.HTML(NOTHING, elem_id="clip-card")
            self.text = gr.Textbox(label="What it says, word for word", lines=2, max_length=2000, elem_id="clip-text")
            with gr.Row():
                self.save = gr.Button("Save the text", variant="primary", min_width=140, elem_id="save-text")
                self.restore = gr.Button("Undo my text", min_width=140, elem_id="restore-text")
                self.listen = gr.Button("Listen again", min_width=140, elem_id="listen-one")
                self.reference = gr.Button("Use as reference clip", min_width=180, elem_id="choose-reference")
            self.verdict = gr.Radio(VERDICTS, value=AS_JUDGED, label="Verdict", elem_id="clip-verdict")
            with gr.Accordion("Move the cut", open=False, elem_id="cut"):
                with gr.Row():
                    self.start = gr.Number(
                        label="Start in the recording (s)", step=0.05, min_width=140, elem_id="cut-start"
                    )
                    self.end = gr.Number(label="End (s)", step=0.05, min_width=140, elem_id="cut-end")
                    self.padding = gr.Slider(
                        0, 0.5, 0, step=0.05, label="Padding at both ends (s)", min_width=180, elem_id="cut-padding"
                    )
                with gr.Row():
                    self.move = gr.Button("Cut there", min_width=140, elem_id="move-cut")
                    self.unmove = gr.Button("Cut as before", min_width=140, elem_id="unmove-cut")
            self.note = gr.HTML(NOTHING, elem_id="clip-note")
        self._connect()

    @property
    def _datasets(self) -> Datasets:
        return self.clips.context.studio.datasets

    @property
    def shown(self) -> list[Block]:
        """What `show` changes."""
        return [self.body, self.card, self.text, self.verdict, self.start, self.end, self.padding, self.note]

    def show(self, view: DatasetView | None, key: str | None, problem: EncoreError | None = None) -> Update:
        """Show a clip, and why an edit of it was refused."""
        clip = find_clip(view, key)
        note = failure(problem) if problem else NOTHING
        if view is None or clip is None:
            return {self.body: HIDE, self.card: NOTHING, self.text: "", self.verdict: AS_JUDGED, self.note: note}
        span, person = clip.details.current.span, clip.details.person_verdict
        own = Verdict.REJECTED if person is Verdict.REJECTED else Verdict.ACCEPTED
        return {
            self.body: SHOW,
            self.card: clip_card(clip, numbers_of(view)[clip.key], self.clips.hear(clip)),
            self.text: clip.text,
            self.verdict: own.value if person is not None else AS_JUDGED,
            self.start: round(span.start_seconds, 3),
            self.end: round(span.end_seconds, 3),
            self.padding: 0,
            self.note: note,
        }

    def _connect(self) -> None:
        clips = self.clips
        clip: Inputs = {"name": clips.chosen, "key": clips.key}
        bind(clips.key.input, self._choose, clip, self.shown, api="show_clip")
        bind(clips.table.click, self._choose_pressed, {"name": clips.chosen}, [clips.key, *self.shown])
        # Whisper once more, and what it heard as the text.
        bind(self.listen.click, self._listen, clip, clips.followed, js=SHOW_TASK)
        bind(clips.changes.click, self._take_over, clips.look, [*clips.listing, *self.shown, clips.changes])
        edits: tuple[tuple[Trigger, Callable[..., None], Inputs, str], ...] = (
            (self.save.click, self._edit_text, {"text": self.text}, "edit_text"),
            (self.restore.click, self._restore_text, {}, "restore_text"),
            (self.verdict.input, self._overrule, {"verdict": self.verdict}, "overrule"),
            (self.reference.click, self._choose_reference, {}, "choose_reference"),
            (
                self.move.click,
                self._move_cut,
                {"start": self.start, "end": self.end, "padding": self.padding},
                "move_cut",
            ),
            (self.unmove.click, self._unmove_cut, {}, "unmove_cut"),
        )
        for trigger, edit, fields, api in edits:
            inputs = {**clips.look, "key": clips.key, **fields}
            bind(trigger, self._editing(edit), inputs, [*clips.listing, *self.shown], api=api)

    def _choose(self, name: str | None, key: str | None) -> Update:
        return self.show(self.clips.view(name), key)

    def _choose_pressed(self, name: str | None, event: gr.EventData) -> Update:
        """Show the clip whose button was pressed."""
        key = str(event.clip)
        return {self.clips.key: key, **self.show(self.clips.view(name), key)}

    def _listen(self, name: str | None, key: str | None) -> Update:
        return self.clips.start_listening(name, [key] if key else [])

    def _take_over(self, name: str | None, wanted: str, sort: str, page: float | None, event: gr.EventData) -> Update:
        """Make what was heard the text of the clip whose button was pressed."""
        key = str(event.clip)
        self.take_over(name, key)
        view = self.clips.view(name)
        changes: Update = {self.clips.changes: self.clips.follow(name)[self.clips.changes]}
        return {**self.clips.update(view, wanted, sort, page), **self.show(view, key), **changes}

    def take_over(self, name: str | None, key: str) -> None:
        """Make what was heard the text of a clip. Raises EncoreError."""
        changes = self.clips.open_changes(name, self.clips.view(name)) or []
        change = next((one for one in changes if one.key == key), None)
        if change is None:
            raise FormIncomplete("This was taken over already.")
        self._datasets.edit_text(str(name), key, change.after)

    def _editing(self, edit: Callable[..., None]) -> Callable[..., Iterator[Update]]:
        """A handler that edits and shows what has become of it; a refusal appears next to the clip."""

        def change(
            name: str | None,
            key: str | None,
            wanted: str,
            sort: str,
            page: float | None,
            request: gr.Request,
            **fields: Any,
        ) -> Iterator[Update]:
            """Edit in the background, then show the clips and the editor as they are now."""
            problem = None
            try:
                if not name or not key:
                    raise FormIncomplete("Choose a clip first.")
                # In the background: in a large set, an edit that moves its centre takes a moment.
                yield from self.clips.context.follow(
                    f"edit {session_of(request)}",
                    "Reviewing what this changes",
                    lambda _: edit(name, key, **fields),
                    lambda state: {self.note: task_line(state)},
                )
            except EncoreError as error:
                problem = error
            view = self.clips.view(name)
            yield {**self.clips.update(view, wanted, sort, page), **self.show(view, key, problem)}

        return change

    def _edit_text(self, name: str, key: str, text: str) -> None:
        self._datasets.edit_text(name, key, text)

    def _restore_text(self, name: str, key: str) -> None:
        self._datasets.edit_text(name, key, None)

    def _overrule(self, name: str, key: str, verdict: str) -> None:
        self._datasets.overrule(name, key, None if verdict == AS_JUDGED else Verdict(verdict))

    def _choose_reference(self, name: str, key: str) -> None:
        self._datasets.choose_reference(name, key)

    def _move_cut(self, name: str, key: str, start: float | None, end: float | None, padding: float) -> None:
        """Another stretch of the recording, with a little more at both ends."""
        if start is None or end is None:
            raise FormIncomplete("Fill in where the clip starts and ends.")
        self._datasets.move_cut(name, key, max(0.0, start - padding), end + padding)

    def _unmove_cut(self, name: str, key: str) -> None:
        """The stretch that was chosen at first."""
        clip = find_clip(self.clips.view(name), key)
        if clip is not None:
            span = clip.details.original.span
            self._datasets.move_cut(name, key, span.start_seconds, span.end_seconds)


def find_clip(view: DatasetView | None, key: str | None) -> ClipRow | None:
    """A clip by its key, if there is one."""
    return next((clip for clip in view.clips if clip.key == key), None) if view is not None else None
