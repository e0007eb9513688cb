"""The Dataset tab: recordings become clips with transcripts, and the user decides which to learn from."""

from __future__ import annotations

import threading
from typing import Any

import gradio as gr
from gradio.blocks import Block

from backend.dataset.sources.material import proposed_name
from backend.dataset.storage.lock import is_locked
from backend.errors import EncoreError
from backend.transcription.catalogue import PUBLISHED_WHISPERS
from ui.context import PageContext
from ui.events import HIDE, Update, bind
from ui.fields import Confirmation, FormIncomplete, build_language, language_choices
from ui.html.messages import NOTHING, heading, note, says
from ui.html.templates import html
from ui.html.words import size_in_words
from ui.material import gather_material, parse_actors, plan_build, voice_name
from ui.source import Reference, Source, VoiceFields
from ui.tabs.dataset.clip_editor import ClipEditor
from ui.tabs.dataset.clips import ClipsPart
from ui.tabs.dataset.render import ABOUT, progress_html, sources_line

NEW = ""
"""Chosen instead of a dataset: one that is yet to be made."""

POLL_SECONDS = 1.0

WHISPERS = (
    ("Automatic: a Whisper that is here, or pocketsphinx (English)", ""),
    *((f"{one.name}: {one.purpose} ({size_in_words(one.num_bytes)})", one.name) for one in PUBLISHED_WHISPERS),
    ("None: every recording has a text file", "none"),
)


class DatasetTab:
    """Builds a dataset of what was given here and on the Voice tab, and shows its clips."""

    def __init__(self, context: PageContext, tab: gr.Tab, voice: VoiceFields) -> None:
        self.context, self.voice = context, voice
        gr.HTML(heading("Dataset"), elem_classes=["step"])
        gr.HTML(note(ABOUT))
        self.chosen = gr.Dropdown([("A new one", NEW)], value=NEW, label="Dataset", elem_id="dataset")
        with gr.Row():
            self.delete = gr.Button(
                "Delete this dataset", variant="stop", visible=False, min_width=160, elem_id="delete-dataset"
            )
        self.confirmation = Confirmation("Yes, delete its clips, texts and uploads", "-dataset")
        self.deleted = gr.HTML(NOTHING, elem_id="dataset-deleted")
        self.files = gr.File(
            label="Recordings, zips, and their texts (optional)",
            file_count="multiple",
            height=140,
            elem_id="dataset-files",
        )
        self.sources = gr.HTML(sources_line([], 0), elem_id="dataset-sources")
        with gr.Row(elem_classes=["choose"]):
            self.name = gr.Textbox(
                label="Name of the dataset", max_length=64, scale=2, min_width=180, elem_id="dataset-name"
            )
            self.language = build_language(scale=1, min_width=170, elem_id="dataset-language")
            self.prepare = gr.Button("Prepare", variant="primary", scale=1, min_width=120, elem_id="prepare")
            self.cancel = gr.Button("Cancel", visible=False, scale=1, min_width=120, elem_id="cancel-prepare")
        with gr.Accordion("Transcription model and parallel workers", open=False):
            self.whisper = gr.Dropdown(
                list(WHISPERS),
                value="",
                label="Whisper model",
                info="Texts that came with recordings are taken as they are. A file or folder may be typed.",
                allow_custom_value=True,
                elem_id="dataset-whisper",
            )
            # Not gr.Number, which turns an empty field into 0.
            self.actors = gr.Textbox(
                placeholder="chosen for this machine",
                max_length=3,
                label="Parallel workers (optional)",
                info="Empty suits the machine; 0 works in one process, without Ray.",
                elem_id="dataset-actors",
            )
        self.progress = gr.HTML(NOTHING, elem_id="prepare-progress")
        self.seen = gr.State(None)
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        self.clips = ClipsPart(context, self.chosen)
        self.editor = ClipEditor(self.clips)
        self._connect(tab)
        # Ray takes seconds to load: best while the user is still busy on the first tab.
        bind(context.page.load, self._warm_up, quick=True)

    @property
    def following(self) -> list[Block]:
        """What `_follow` changes."""
        return [self.seen, self.progress, self.prepare, self.cancel, self.timer]

    def _connect(self, tab: gr.Tab) -> None:
        given = {"references": self.voice.references, "source": self.voice.source, "files": self.files}
        opened = [self.name, *self.following, *self.clips.listing, self.editor.body]
        chosen = {"chosen": self.chosen}
        bind(
            tab.select,
            self._refresh,
            {**chosen, **given, "name": self.name},
            [self.chosen, self.sources, self.language, *opened],
            api="list_datasets",
        )
        bind(self.files.change, self._list_sources, given, self.sources, quick=True)
        bind(self.chosen.input, self._choose, chosen, opened, api="choose_dataset")
        material = {
            **given,
            "transcript": self.voice.transcript,
            "name": self.name,
            "language": self.language,
            "whisper": self.whisper,
            "actors": self.actors,
        }
        bind(self.prepare.click, self._prepare, material, [self.chosen, *self.following], api="prepare_dataset")
        bind(
            self.timer.tick,
            self._tick,
            {**chosen, "seen": self.seen},
            [*self.following, *self.clips.listing, self.editor.body],
            api="follow_dataset",
            quick=True,
        )
        bind(self.cancel.click, self._cancel, chosen, api="cancel_dataset", quick=True)
        bind(self.chosen.change, self._offer_deletion, chosen, [self.delete, self.confirmation.row], quick=True)
        self.confirmation.ask_on(self.delete)
        bind(
            self.confirmation.really.click,
            self._delete,
            chosen,
            [self.deleted, self.confirmation.row, self.chosen, *opened],
            api="delete_dataset",
        )

    def _refresh(
        self,
        chosen: str | None,
        references: list[Reference],
        source: Source | None,
        files: list[str] | None,
        name: str,
    ) -> Update:
        """The datasets there are now, and what is to be prepared."""
        names = self.context.studio.datasets.list()
        value = chosen if chosen in names else NEW
        update: Update = {
            **self._choices(value),
            **self._list_sources(references, source, files),
            self.language: gr.update(choices=language_choices(self.context.studio.loaded)),
            **self._show(value),
        }
        return update if name else {**update, self.name: proposed_name(voice_name(source), names)}

    def _choices(self, value: str) -> Update:
        names = self.context.studio.datasets.list()
        return {self.chosen: gr.update(choices=[("A new one", NEW), *((one, one) for one in names)], value=value)}

    def _show(self, name: str) -> Update:
        """A dataset, and no clip of it."""
        return {**self._follow(name, None)[0], **self.clips.open(name), self.editor.body: HIDE}

    def _choose(self, chosen: str | None) -> Update:
        """Show another dataset."""
        name = chosen or proposed_name("", self.context.studio.datasets.list())
        return {self.name: name, **self._show(chosen or NEW)}

    def _list_sources(self, references: list[Reference], source: Source | None, files: list[str] | None) -> Update:
        names = [reference.name for reference in references]
        if gather_material(references, source).sample and source is not None:
            names.append(source.name)
        return {self.sources: sources_line(names, len(files or []))}

    def _prepare(
        self,
        references: list[Reference],
        source: Source | None,
        transcript: str,
        files: list[str] | None,
        name: str,
        language: str | None,
        whisper: str | None,
        actors: str,
    ) -> Update:
        """Start a build of what was given."""
        job = plan_build(
            self.context,
            gather_material(references, source, transcript, files or []),
            name=name,
            language=language or "auto",
            whisper=whisper or "",
            num_actors=parse_actors(actors or ""),
        )
        self.context.studio.datasets.start_build(job)
        return {**self._choices(job.name), **self._follow(job.name, None)[0]}

    def _tick(self, chosen: str | None, seen: str | None) -> Update:
        """Progress of the build, and its clips at its end."""
        update, has_ended = self._follow(chosen or NEW, seen)
        return {**update, **self.clips.open(chosen or NEW), self.editor.body: HIDE} if has_ended else update

    def _cancel(self, chosen: str | None) -> None:
        if chosen:
            self.context.studio.datasets.cancel(chosen)

    def _offer_deletion(self, chosen: str | None) -> Update:
        return {self.delete: gr.update(visible=bool(chosen)), self.confirmation.row: HIDE}

    def _delete(self, chosen: str | None) -> Update:
        """Delete it and say what stays."""
        if not chosen:
            raise FormIncomplete("Choose a dataset first.")
        self.context.studio.delete_dataset(chosen)
        gone = html("<strong>{}</strong> was deleted. Voices that were made from it stay.", chosen)
        return {
            self.deleted: says("", gone),
            self.confirmation.row: HIDE,
            **self._choices(NEW),
            **self._choose(NEW),
        }

    def _follow(self, name: str, seen: str | None) -> tuple[Update, bool]:
        """Progress of the build, unless the page has `seen` it; and whether the build has ended since."""
        try:
            progress = self.context.studio.datasets.progress(name) if name else None
        except EncoreError:
            progress = None
        is_running = progress is not None and progress.is_running
        shown = progress_html(progress)
        if progress is not None and not is_running and seen and is_locked(self.context.settings.home_folder, name):
            # Its process is about to end; until then nothing can be edited.
            is_running, shown = True, says("", "Finishing …")
        if shown == seen:
            return {}, False
        update: dict[Block, Any] = {
            self.seen: shown,
            self.progress: shown,
            self.prepare: gr.update(interactive=not is_running),
            self.cancel: gr.update(visible=is_running),
            self.timer: gr.Timer(active=is_running),
        }
        return update, not is_running

    def _warm_up(self) -> None:
        threading.Thread(target=lambda: self.context.studio.datasets, daemon=True, name="load-ray").start()
