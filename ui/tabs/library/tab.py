"""The library tab: voices with where they come from and who agreed, and what can be done with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from backend.background_tasks import BackgroundTask, TaskState
from backend.errors import EncoreError
from backend.voices.voice import Voice
from ui.context import PageContext
from ui.errors import shows_errors, stream_shows_errors
from ui.html import base as render
from ui.live.follow import follow
from ui.tabs.dataset import render as render_dataset
from ui.tabs.library import render as render_library
from ui.tabs.voice import render as render_source
from ui.tabs.voice.speak import NotReady
from ui.tabs.voice.takes import build_take_list, connect_api_takes
from ui.web.temporary import unguessable_path

API_ADDRESS = "http://127.0.0.1:8000"
"""Where `app.py serve` listens unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class LibraryPart:
    """Its components."""

    voices: gr.HTML
    chosen: gr.Dropdown
    name: gr.Textbox
    rename: gr.Button
    export: gr.Button
    delete: gr.Button
    certain: gr.Row
    really: gr.Button
    back: gr.Button
    status: gr.HTML
    api: gr.HTML
    cancel: gr.Button
    file: gr.File
    import_name: gr.Textbox
    import_: gr.Button

    @property
    def listing(self) -> list[Any]:
        """What `Shelf.show` gives values for."""
        return [self.voices, self.chosen, self.name, self.api]


def build_library_tab(context: PageContext, tab: gr.Tab) -> None:
    """Lay the tab out and connect its events."""
    gr.HTML("<h2>Library</h2>", elem_classes=["step"])
    part = _build()
    shelf = Shelf(context)
    for event in (context.page.load, tab.select):
        event(
            shows_errors(shelf.show),
            part.chosen,
            part.listing,
            queue=False,
            show_progress="hidden",
            api_name="list_voices" if event == tab.select else None,
            api_visibility="undocumented" if event == tab.select else "private",
        )
    part.chosen.input(shows_errors(shelf.show), part.chosen, part.listing, queue=False, api_visibility="private")
    with gr.Accordion("Spoken through the API", open=False, elem_id="api-takes-section"):
        connect_api_takes(context, build_take_list("api-takes"), tab)
    _connect_changes(shelf, part)
    _connect_files(context, shelf, part)


def _build() -> LibraryPart:
    voices = gr.HTML(render_library.EMPTY, elem_id="voices")
    gr.HTML("<h2>Use, change or share one</h2>", elem_classes=["step"])
    chosen = gr.Dropdown([], value=None, label="Voice", elem_id="library-voice")
    api = gr.HTML(render.NOTHING, elem_id="api")
    with gr.Row(elem_classes=["choose"]):
        name = gr.Textbox(label="Its name", max_length=64, scale=3, min_width=180, elem_id="library-name")
        rename = gr.Button("Rename", scale=1, min_width=100, elem_id="rename")
        export = gr.Button("Export", scale=1, min_width=100, elem_id="export")
        delete = gr.Button("Delete", variant="stop", scale=1, min_width=100, elem_id="delete")
    with gr.Row(visible=False) as certain:
        really = gr.Button("Yes, delete it for good", variant="stop", elem_id="really-delete")
        back = gr.Button("No, keep it", elem_id="keep-it")
    status = gr.HTML(render.NOTHING, elem_id="library-status")
    cancel = gr.Button("Cancel", visible=False, elem_id="cancel-file")
    with gr.Accordion("Import a voice", open=False, elem_id="import"):
        gr.HTML(
            '<p class="note">A voice file holds the recording, the consent and, of a fine-tune, the checkpoint. '
            "It is checked before anything of it is used.</p>"
        )
        file = gr.File(label="Voice file (.encore-voice)", height=140, elem_id="voice-file")
        with gr.Row(elem_classes=["choose"]):
            import_name = gr.Textbox(
                label="Another name for it (optional)", max_length=64, scale=3, min_width=180, elem_id="import-name"
            )
            import_ = gr.Button("Import", scale=1, min_width=100, elem_id="import-voice")
    return LibraryPart(
        voices=voices,
        chosen=chosen,
        name=name,
        rename=rename,
        export=export,
        delete=delete,
        certain=certain,
        really=really,
        back=back,
        status=status,
        api=api,
        cancel=cancel,
        file=file,
        import_name=import_name,
        import_=import_,
    )


@dataclass(frozen=True)
class Shelf:
    """What the handlers of this tab do."""

    context: PageContext

    def show(self, chosen: str | None) -> list[Any]:
        """List, choice, name and API lines, with `chosen` if it is still there, else the newest."""
        voices = self.context.studio.voices.list()
        kept = next((voice for voice in voices if voice.id == chosen), voices[-1] if voices else None)
        choices = gr.update(
            choices=[(voice.name, voice.id) for voice in reversed(voices)], value=kept.id if kept else None
        )
        api = render_library.api_lines(kept, API_ADDRESS, self._model()) if kept else render.NOTHING
        return [self._list(voices), choices, kept.name if kept else "", api]

    def get(self, voice_id: str | None) -> Voice:
        """The voice that is chosen. Raises EncoreError."""
        if not voice_id:
            raise NotReady("Choose a voice first. There are some once you have saved one on the Voice tab.")
        return self.context.studio.voices.get(voice_id)

    def rename(self, voice_id: str | None, name: str) -> list[Any]:
        """Call it something else."""
        voice = self.context.studio.voices.rename(self.get(voice_id).id, name)
        return [*self.show(voice.id), render.says("good", f"It is called {render.escaped(voice.name)} now.")]

    def delete(self, voice_id: str | None) -> list[Any]:
        """Remove it."""
        voice = self.get(voice_id)
        self.context.studio.delete_voice(voice.id)
        gone = render.says("", f"{render.escaped(voice.name)} was deleted, with its recording and its consent.")
        return [*self.show(None), gone, gr.update(visible=False)]

    def export(self, voice_id: str | None, visit: str) -> Iterator[list[Any]]:
        """Write its file, and offer it."""
        voice = self.get(voice_id)
        folder = unguessable_path(self.context.folder, "export").parent

        def work(task: BackgroundTask) -> Path:
            return self.context.studio.voices.export(voice.id, folder, report=task.report)

        what = f"Writing {voice.name} into a file"
        try:
            path = yield from follow(self.context.background_tasks, f"file {visit}", what, work, _under_way)
        except EncoreError as error:
            yield _ended(render.says("bad", render.escaped(str(error)), role="alert"))
            return
        yield _ended(render_source.download_line(voice.name, path, path.stat().st_size))

    def import_(self, file: str | None, name: str, visit: str) -> Iterator[list[Any]]:
        """Make a voice of a file."""
        if not file:
            raise NotReady("Choose a voice file first.")
        nothing_new = [gr.skip()] * 4

        def work(task: BackgroundTask) -> Voice:
            return self.context.studio.voices.import_(Path(file), name.strip() or None, report=task.report)

        def show(state: TaskState) -> list[Any]:
            return [*nothing_new, *_under_way(state)]

        try:
            voice = yield from follow(self.context.background_tasks, f"file {visit}", "Checking the file", work, show)
        except EncoreError as error:
            yield [*nothing_new, *_ended(render.says("bad", render.escaped(str(error)), role="alert"))]
            return
        yield [*self.show(voice.id), *_ended(render_source.saved_line(voice))]

    def _list(self, voices: tuple[Voice, ...]) -> str:
        players = {}
        for voice in voices:
            place = self.context.files.place(voice.reference) if voice.reference is not None else None
            if place is not None:
                players[voice.id] = place
        return render_library.voice_list(voices, players, self._wins())

    def _wins(self) -> dict[str, int]:
        winners = [comparison.winner for comparison in self.context.studio.comparing.rows.list_voted()]
        return dict(Counter(take.side.id for take in winners if take is not None))

    def _model(self) -> str:
        loaded = self.context.studio.loaded
        return loaded.name if loaded is not None else self.context.settings.model


def _under_way(state: TaskState) -> list[Any]:
    """How far a file is, and a way to stop it."""
    return [render_dataset.task_line(state, render.size_in_words), gr.update(visible=True)]


def _ended(said: str) -> list[Any]:
    return [said, gr.update(visible=False)]


def _connect_changes(shelf: Shelf, part: LibraryPart) -> None:
    part.rename.click(
        shows_errors(shelf.rename),
        [part.chosen, part.name],
        [*part.listing, part.status],
        api_name="rename_voice",
        api_visibility="undocumented",
    )
    part.delete.click(
        shows_errors(lambda chosen: gr.update(visible=bool(shelf.get(chosen)))),
        part.chosen,
        part.certain,
        queue=False,
        api_visibility="private",
    )
    part.back.click(lambda: gr.update(visible=False), None, part.certain, queue=False, api_visibility="private")
    part.really.click(
        shows_errors(shelf.delete),
        part.chosen,
        [*part.listing, part.status, part.certain],
        api_name="delete_voice",
        api_visibility="undocumented",
    )


def _connect_files(context: PageContext, shelf: Shelf, part: LibraryPart) -> None:
    def export(voice_id: str | None, request: gr.Request) -> Iterator[list[Any]]:
        yield from shelf.export(voice_id, str(request.session_hash))

    def import_(file: str | None, name: str, request: gr.Request) -> Iterator[list[Any]]:
        yield from shelf.import_(file, name, str(request.session_hash))

    def cancel(request: gr.Request) -> None:
        context.background_tasks.cancel(f"file {request.session_hash}")

    part.export.click(
        stream_shows_errors(export),
        part.chosen,
        [part.status, part.cancel],
        api_name="export_voice",
        api_visibility="undocumented",
        show_progress="hidden",
    )
    part.import_.click(
        stream_shows_errors(import_),
        [part.file, part.import_name],
        [*part.listing, part.status, part.cancel],
        api_name="import_voice",
        api_visibility="undocumented",
        show_progress="hidden",
    )
    part.cancel.click(
        cancel,
        None,
        None,
        queue=False,
        api_name="cancel_file",
        api_visibility="undocumented",
    )
