"""The Voices tab: voices with where they come from and who agreed, and what can be done with each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from backend.background_tasks import BackgroundTask, TaskState
from backend.errors import EncoreError
from backend.store.trash import Deleted
from backend.voices.voice import Voice
from ui.context import PageContext
from ui.events import HIDE, SHOW, Update, bind, session_of
from ui.fields import Confirmation, FormIncomplete
from ui.html.messages import NOTHING, download_link, failure, heading, note, says, task_line
from ui.html.templates import html
from ui.html.voices import saved_line
from ui.html.words import size_in_words
from ui.tabs.library.render import EMPTY, IMPORT_NOTE, api_lines, voice_list
from ui.takes import ApiTakes
from ui.undo import Undo
from ui.web.temporary import unguessable_path

API_ADDRESS = "http://127.0.0.1:8000"
"""Where `app.py serve` listens by default."""


class LibraryTab:
    """Lists the voices, and renames, deletes, exports and imports them."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        self.context = context
        gr.HTML(heading("Library"), elem_classes=["step"])
        self.voices = gr.HTML(note(EMPTY), elem_id="voices")
        gr.HTML(heading("Use, change or share one"), elem_classes=["step"])
        self.chosen = gr.Dropdown([], value=None, label="Voice", elem_id="library-voice")
        self.api = gr.HTML(NOTHING, elem_id="api")
        with gr.Row(elem_classes=["choose"]):
            self.name = gr.Textbox(label="Its name", max_length=64, scale=3, min_width=180, elem_id="library-name")
            self.rename = gr.Button("Rename", scale=1, min_width=100, elem_id="rename")
            self.export = gr.Button("Export", scale=1, min_width=100, elem_id="export")
            self.delete = gr.Button("Delete", variant="stop", scale=1, min_width=100, elem_id="delete")
        self.confirmation = Confirmation("Yes, delete it", "")
        self.undo = Undo(context, "voice")
        self.status = gr.HTML(NOTHING, elem_id="library-status")
        self.cancel = gr.Button("Cancel", visible=False, elem_id="cancel-file")
        with gr.Accordion("Import a voice", open=False, elem_id="import"):
            gr.HTML(note(IMPORT_NOTE))
            self.file = gr.File(label="Voice file (.encore-voice)", height=140, elem_id="voice-file")
            with gr.Row(elem_classes=["choose"]):
                self.import_name = gr.Textbox(
                    label="Another name for it (optional)", max_length=64, scale=3, min_width=180, elem_id="import-name"
                )
                self.import_ = gr.Button("Import", scale=1, min_width=100, elem_id="import-voice")
        with gr.Accordion("Spoken through the API", open=False, elem_id="api-takes-section"):
            ApiTakes(context, tab)
        self._connect(tab)

    def _connect(self, tab: gr.Tab) -> None:
        chosen = {"chosen": self.chosen}
        listing = [self.voices, self.chosen, self.name, self.api]
        bind([tab.select, self.context.page.load], self._show, chosen, listing, api="list_voices", quick=True)
        bind(self.chosen.input, self._show, chosen, listing, quick=True)
        renaming = {**chosen, "name": self.name}
        bind(self.rename.click, self._rename, renaming, [*listing, self.status], api="rename_voice")
        bind(self.delete.click, self._ask, chosen, self.confirmation.row, quick=True)
        deleted = [*listing, self.status, self.confirmation.row, *self.undo.shown]
        bind(self.confirmation.really.click, self._delete, chosen, deleted, api="delete_voice")
        self.undo.connect(self._restore, {}, [*listing, self.status])
        bind(self.export.click, self._export, chosen, [self.status, self.cancel], api="export_voice")
        importing = {"file": self.file, "name": self.import_name}
        bind(self.import_.click, self._import, importing, [*listing, self.status, self.cancel], api="import_voice")
        bind(self.cancel.click, self._cancel, api="cancel_file", quick=True)

    def _show(self, chosen: str | None) -> Update:
        """The list, with `chosen` if it is still there, else the newest."""
        voices = self.context.studio.voices.list()
        kept = next((voice for voice in voices if voice.id == chosen), voices[-1] if voices else None)
        choices = [(voice.name, voice.id) for voice in reversed(voices)]
        return {
            self.voices: self._list(voices),
            self.chosen: gr.update(choices=choices, value=kept.id if kept else None),
            self.name: kept.name if kept else "",
            self.api: api_lines(kept, API_ADDRESS, self._model()) if kept else NOTHING,
        }

    def _get(self, voice_id: str | None) -> Voice:
        """The voice that is chosen. Raises EncoreError."""
        if not voice_id:
            raise FormIncomplete("Choose a voice first. To have one, save it on the Speak tab.")
        return self.context.studio.voices.get(voice_id)

    def _rename(self, chosen: str | None, name: str) -> Update:
        voice = self.context.studio.voices.rename(self._get(chosen).id, name)
        return {**self._show(voice.id), self.status: says("good", f"It is now called {voice.name}.")}

    def _ask(self, chosen: str | None) -> Update:
        """Ask whether to delete it. Raises EncoreError if there is none."""
        self._get(chosen)
        return {self.confirmation.row: SHOW}

    def _delete(self, chosen: str | None) -> Update:
        voice = self._get(chosen)
        deleted = self.context.studio.delete_voice(voice.id)
        gone = says("", f"{voice.name} was deleted, with its recording and its consent.")
        return {**self._show(None), self.status: gone, self.confirmation.row: HIDE, **self.undo.offer(deleted)}

    def _restore(self, deleted: Deleted) -> Update:
        voice = self._get(self.context.studio.trash.restore(deleted.id).item_id)
        return {**self._show(voice.id), self.status: says("good", f"{voice.name} is back.")}

    def _export(self, chosen: str | None, request: gr.Request) -> Iterator[Update]:
        """Write its file, and offer it."""
        voice = self._get(chosen)
        folder = unguessable_path(self.context.folder, "export").parent

        def export(task: BackgroundTask[Any]) -> Path:
            """Write the voice file."""
            return self.context.studio.voices.export(voice.id, folder, report=task.report)

        what = f"Writing {voice.name} into a file"
        try:
            path = yield from self.context.follow(f"file {session_of(request)}", what, export, self._under_way)
        except EncoreError as error:
            yield self._ended(failure(error))
            return
        link, size = download_link(path, f"Download {path.name}"), size_in_words(path.stat().st_size)
        yield self._ended(says("good", html("<strong>{} is ready:</strong> {} ({})", voice.name, link, size)))

    def _import(self, file: str | None, name: str, request: gr.Request) -> Iterator[Update]:
        """Make a voice from a file."""
        if not file:
            raise FormIncomplete("Choose a voice file first.")

        def import_(task: BackgroundTask[Any]) -> Voice:
            """Check the voice file, and add its voice to the library."""
            return self.context.studio.voices.import_(Path(file), name.strip() or None, report=task.report)

        try:
            voice = yield from self.context.follow(
                f"file {session_of(request)}", "Checking the file", import_, self._under_way
            )
        except EncoreError as error:
            yield self._ended(failure(error))
            return
        yield {**self._show(voice.id), **self._ended(saved_line(voice))}

    def _cancel(self, request: gr.Request) -> None:
        self.context.background_tasks.cancel(f"file {session_of(request)}")

    def _under_way(self, state: TaskState[Any]) -> Update:
        """Progress of a file, and a way to stop it."""
        return {self.status: task_line(state, size_in_words), self.cancel: SHOW}

    def _ended(self, said: str) -> Update:
        return {self.status: said, self.cancel: HIDE}

    def _list(self, voices: tuple[Voice, ...]) -> str:
        places = {
            voice.id: self.context.files.place(voice.reference) for voice in voices if voice.reference is not None
        }
        players = {voice_id: place for voice_id, place in places.items() if place is not None}
        votes = {voice.id: self.context.studio.comparisons.standing(voice) for voice in voices}
        return voice_list(voices, players, votes)

    def _model(self) -> str:
        loaded = self.context.studio.loaded
        return loaded.name if loaded is not None else self.context.settings.model
