"""One clip of a dataset: heard, its text corrected, its verdict overruled, its cut moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import ClipRow, DatasetView, TranscriptChange
from backend.errors import EncoreError
from ui.errors import shows_errors
from ui.html import base as render
from ui.live.follow import follow
from ui.tabs.dataset import render as render_dataset
from ui.tabs.dataset import render_clips
from ui.tabs.voice.speak import NotReady

if TYPE_CHECKING:
    from ui.tabs.dataset.clips import ClipsShelf
    from ui.tabs.dataset.clips_part import ClipsPart

AS_JUDGED = "as judged"
SHOW_ERRAND = """(...values) => {
  document.getElementById("dataset-errand").scrollIntoView({ behavior: "smooth", block: "center" });
  return values;
}"""
VERDICTS = [("As judged", AS_JUDGED), ("Accept", Verdict.ACCEPTED.value), ("Reject", Verdict.REJECTED.value)]


@dataclass(frozen=True, kw_only=True)
class EditorPart:
    """Its components."""

    key: gr.Dropdown
    body: gr.Column
    card: gr.HTML
    text: gr.Textbox
    save: gr.Button
    restore: gr.Button
    verdict: gr.Radio
    reference: gr.Button
    listen: gr.Button
    start: gr.Number
    end: gr.Number
    padding: gr.Slider
    move: gr.Button
    unmove: gr.Button
    note: gr.HTML

    @property
    def shown(self) -> list[Any]:
        """What `_show` gives values for."""
        return [self.body, self.card, self.text, self.verdict, self.start, self.end, self.padding, self.note]


def build_editor() -> EditorPart:
    """Lay it out."""
    gr.HTML("<h2>One clip</h2>", elem_classes=["step"])
    key = gr.Dropdown([], value=None, label="Clip to work on", elem_id="clip")
    with gr.Column(visible=False) as body:
        card = gr.HTML(render.NOTHING, elem_id="clip-card")
        text = gr.Textbox(label="What it says, word for word", lines=2, max_length=2000, elem_id="clip-text")
        with gr.Row():
            save = gr.Button("Save the text", variant="primary", min_width=140, elem_id="save-text")
            restore = gr.Button("Undo my text", min_width=140, elem_id="restore-text")
            listen = gr.Button("Listen again", min_width=140, elem_id="listen-one")
            reference = gr.Button("Let it stand for the voice", min_width=180, elem_id="choose-reference")
        verdict = gr.Radio(VERDICTS, value=AS_JUDGED, label="Verdict", elem_id="clip-verdict")
        with gr.Accordion("Move the cut", open=False, elem_id="cut"):
            with gr.Row():
                start = gr.Number(label="Start in the recording (s)", step=0.05, min_width=140, elem_id="cut-start")
                end = gr.Number(label="End (s)", step=0.05, min_width=140, elem_id="cut-end")
                padding = gr.Slider(
                    0, 0.5, 0, step=0.05, label="Padding at both ends (s)", min_width=180, elem_id="cut-padding"
                )
            with gr.Row():
                move = gr.Button("Cut there", min_width=140, elem_id="move-cut")
                unmove = gr.Button("Cut as before", min_width=140, elem_id="unmove-cut")
        note = gr.HTML(render.NOTHING, elem_id="clip-note")
    return EditorPart(
        key=key,
        body=body,
        card=card,
        text=text,
        save=save,
        restore=restore,
        verdict=verdict,
        reference=reference,
        listen=listen,
        start=start,
        end=end,
        padding=padding,
        move=move,
        unmove=unmove,
        note=note,
    )


def connect_editor(shelf: ClipsShelf, part: ClipsPart, chosen: gr.Dropdown) -> None:
    """Make it work."""
    _connect_picking(shelf, part, chosen)
    _connect_edits(shelf, part, chosen)
    _connect_listening(shelf, part, chosen)


def _connect_picking(shelf: ClipsShelf, part: ClipsPart, chosen: gr.Dropdown) -> None:
    editor = part.editor

    def show(name: str | None, key: str | None) -> list[Any]:
        return _show(shelf, shelf.view(name), key)

    def pick(name: str | None, event: gr.EventData) -> list[Any]:
        """Show the clip whose button was pressed."""
        key = str(event.clip)
        return [key, *_show(shelf, shelf.view(name), key)]

    editor.key.input(
        shows_errors(show),
        [chosen, editor.key],
        editor.shown,
        show_progress="hidden",
        api_name="show_clip",
        api_visibility="undocumented",
    )
    part.table.click(pick, chosen, [editor.key, *editor.shown], show_progress="hidden", api_visibility="private")


def _connect_listening(shelf: ClipsShelf, part: ClipsPart, chosen: gr.Dropdown) -> None:
    """Whisper once more, and what it heard as the text."""
    editor = part.editor
    editor.listen.click(
        shows_errors(lambda name, key: shelf.listen(name, [key] if key else [])),
        [chosen, editor.key],
        part.background_tasks,
        show_progress="hidden",
        api_visibility="private",
        # What is heard stands above the table, out of sight.
        js=SHOW_ERRAND,
    )

    def take_over(
        name: str | None, key: str | None, wanted: str, sort: str, page: float | None, event: gr.EventData
    ) -> list[Any]:
        """What was heard becomes the clip's text."""
        _take_over(shelf, str(name), str(event.clip))
        view = shelf.view(name)
        return [*shelf.list(view, wanted, sort, page), *_show(shelf, view, str(event.clip)), shelf.follow(name)[2]]

    part.changes.click(
        shows_errors(take_over),
        [chosen, editor.key, part.wanted, part.sort, part.page],
        [*part.listing, *editor.shown, part.changes],
        show_progress="hidden",
        api_visibility="private",
    )


@dataclass(frozen=True)
class _Edits:
    """What can be done with one clip; each takes the dataset, the clip, and what is filled in."""

    shelf: ClipsShelf

    def edit_text(self, name: str, key: str, text: str) -> None:
        """The person's own text."""
        self.shelf.context.studio.datasets.edit_text(name, key, text)

    def restore_text(self, name: str, key: str) -> None:
        """The text that was there before the person's."""
        self.shelf.context.studio.datasets.edit_text(name, key, None)

    def overrule(self, name: str, key: str, verdict: str) -> None:
        """The person's own verdict, or none any more."""
        datasets = self.shelf.context.studio.datasets
        datasets.overrule(name, key, None if verdict == AS_JUDGED else Verdict(verdict))

    def choose_reference(self, name: str, key: str) -> None:
        """Let this clip stand for the voice."""
        self.shelf.context.studio.datasets.choose_reference(name, key)

    def move_cut(self, name: str, key: str, start: float | None, end: float | None, padding: float) -> None:
        """Another stretch of the recording, with a little more at both ends."""
        if start is None or end is None:
            raise NotReady("Say where the clip starts and ends.")
        self.shelf.context.studio.datasets.move_cut(name, key, max(0.0, start - padding), end + padding)

    def unmove_cut(self, name: str, key: str) -> None:
        """The stretch that was chosen at first."""
        clip = find_clip(self.shelf.view(name), key)
        if clip is not None:
            span = clip.details.original.span
            self.shelf.context.studio.datasets.move_cut(name, key, span.start_seconds, span.end_seconds)


def _connect_edits(shelf: ClipsShelf, part: ClipsPart, chosen: gr.Dropdown) -> None:
    editor, edits = part.editor, _Edits(shelf)
    events: tuple[tuple[Callable[..., Any], Callable[..., None], list[Any], str], ...] = (
        (editor.save.click, edits.edit_text, [editor.text], "edit_text"),
        (editor.restore.click, edits.restore_text, [], "restore_text"),
        (editor.verdict.input, edits.overrule, [editor.verdict], "overrule"),
        (editor.reference.click, edits.choose_reference, [], "choose_reference"),
        (editor.move.click, edits.move_cut, [editor.start, editor.end, editor.padding], "move_cut"),
        (editor.unmove.click, edits.unmove_cut, [], "unmove_cut"),
    )
    for event, edit, fields, name in events:
        event(
            _changing(shelf, part, edit),
            [chosen, editor.key, part.wanted, part.sort, part.page, *fields],
            [*part.listing, *editor.shown],
            show_progress="hidden",
            api_name=name,
            api_visibility="undocumented",
        )


def _changing(shelf: ClipsShelf, part: ClipsPart, edit: Callable[..., None]) -> Callable[..., Iterator[list[Any]]]:
    """A handler that edits and shows what has become of it; a refusal is said beside the clip."""
    unchanged = [gr.skip()] * (len(part.listing) + len(part.editor.shown) - 1)

    def change(
        request: gr.Request,
        dataset: str | None,
        key: str | None,
        wanted: str,
        sort: str,
        page: float | None,
        *values: Any,
    ) -> Iterator[list[Any]]:
        """Edit, then list and show again."""
        problem = ""
        try:
            if not dataset or not key:
                raise NotReady("Choose a clip first.")
            # Beside the event: where a set is large, an edit that moves its centre takes a moment.
            yield from follow(
                shelf.context.background_tasks,
                f"edit {request.session_hash}",
                "Judging what this changes",
                lambda _: edit(dataset, key, *values),
                lambda state: [*unchanged, render_dataset.task_line(state)],
            )
        except EncoreError as error:
            problem = str(error)
        view = shelf.view(dataset)
        yield [*shelf.list(view, wanted, sort, page), *_show(shelf, view, key, problem)]

    return change


def find_clip(view: DatasetView | None, key: str | None) -> ClipRow | None:
    """A clip by its key, if there is one."""
    return next((clip for clip in view.clips if clip.key == key), None) if view is not None else None


def _show(shelf: ClipsShelf, view: DatasetView | None, key: str | None, problem: str = "") -> list[Any]:
    clip = find_clip(view, key)
    note = render.says("bad", render.escaped(problem), role="alert") if problem else render.NOTHING
    if view is None or clip is None:
        return [gr.update(visible=False), render.NOTHING, "", AS_JUDGED, None, None, 0, note]
    number = 1 + [one.key for one in view.clips].index(clip.key)
    span = clip.details.current.span
    person = clip.details.person_verdict
    return [
        gr.update(visible=True),
        render_clips.clip_card(clip, number, shelf.hear(clip)),
        clip.text,
        AS_JUDGED if person is None else ("accepted" if person is not Verdict.REJECTED else "rejected"),
        round(span.start_seconds, 3),
        round(span.end_seconds, 3),
        0,
        note,
    ]


def _take_over(shelf: ClipsShelf, name: str, key: str) -> None:
    """Make what was heard the text of a clip, and drop the clip from the list."""
    state = shelf.background_tasks.state(name)
    changes = state.result if state is not None and isinstance(state.result, list) else []
    change = next((one for one in changes if isinstance(one, TranscriptChange) and one.key == key), None)
    if change is None:
        raise NotReady("This was taken over already.")
    shelf.context.studio.datasets.edit_text(name, key, change.after)
    changes.remove(change)
