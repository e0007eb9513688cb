"""The dataset tab: recordings become clips with transcripts, and a person decides which to learn from."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import gradio as gr

from backend.background_tasks import BackgroundTasks
from backend.dataset.storage.lock import is_locked
from backend.errors import EncoreError
from ui.context import PageContext
from ui.errors import shows_errors
from ui.html import base as render
from ui.source import Reference, Source
from ui.tabs.dataset import render as render_dataset
from ui.tabs.dataset.clips import ClipsShelf, connect_clips_part
from ui.tabs.dataset.clips_part import ClipsPart, build_clips_part
from ui.tabs.dataset.deletion import DeletionPart, build_deletion, connect_deletion
from ui.tabs.dataset.prepare import WHISPERS, Material, Preparation, plan_build, proposed_name
from ui.tabs.voice.source_part import VoicePart

NEW = ""
"""Chosen instead of a dataset: one that is yet to be made."""

POLL_SECONDS = 1.0

ABOUT = (
    '<p class="note">A fine-tune learns from clips: single sentences, each with what it says. Ten minutes of one '
    "person are a good start.</p>"
)


@dataclass(frozen=True, kw_only=True)
class PreparePart:
    """Its components."""

    chosen: gr.Dropdown
    deletion: DeletionPart
    files: gr.File
    sources: gr.HTML
    name: gr.Textbox
    language: gr.Dropdown
    whisper: gr.Dropdown
    actors: gr.Textbox
    prepare: gr.Button
    cancel: gr.Button
    progress: gr.HTML
    seen: gr.State
    timer: gr.Timer

    @property
    def following(self) -> list[Any]:
        """What `_follow` gives values for."""
        return [self.seen, self.progress, self.prepare, self.cancel, self.timer]


def build_dataset_tab(context: PageContext, tab: gr.Tab, voice: VoicePart) -> None:
    """Lay the tab out; `voice` holds the recordings and the consent given on the voice tab."""
    gr.HTML("<h2>Dataset</h2>", elem_classes=["step"])
    gr.HTML(ABOUT)
    part = _build(context)
    clips = build_clips_part()
    shelf = ClipsShelf(context, BackgroundTasks())
    connect_clips_part(shelf, clips, part.chosen)
    _connect_choosing(context, tab, voice, part, clips, shelf)
    _connect_preparing(context, voice, part, clips, shelf)
    # Ray takes seconds to load: best while the person is still busy on the first tab.
    context.page.load(lambda: _warm_up(context), None, None, queue=False, api_visibility="private")


def _build(context: PageContext) -> PreparePart:
    chosen = gr.Dropdown([("A new one", NEW)], value=NEW, label="Dataset", elem_id="dataset")
    deletion = build_deletion()
    files = gr.File(
        label="Recordings, zips, and their texts (optional)",
        file_count="multiple",
        height=140,
        elem_id="dataset-files",
    )
    sources = gr.HTML(render_dataset.sources_line([], 0), elem_id="dataset-sources")
    with gr.Row(elem_classes=["choose"]):
        name = gr.Textbox(label="Name of the dataset", max_length=64, scale=2, min_width=180, elem_id="dataset-name")
        language = gr.Dropdown(
            [("Automatic", "auto")], value="auto", label="Language", scale=1, min_width=170, elem_id="dataset-language"
        )
        prepare = gr.Button("Prepare", variant="primary", scale=1, min_width=120, elem_id="prepare")
        cancel = gr.Button("Cancel", visible=False, scale=1, min_width=120, elem_id="cancel-prepare")
    with gr.Accordion("Who writes down what is said, and how many work on it", open=False):
        whisper = gr.Dropdown(
            list(WHISPERS),
            value="",
            label="Whisper model",
            info="Texts that came with recordings are taken as they are. A file or folder may be typed.",
            allow_custom_value=True,
            elem_id="dataset-whisper",
        )
        # Not gr.Number, which turns an empty field into 0.
        actors = gr.Textbox(
            placeholder="as many as suit the machine",
            max_length=3,
            label="Copies of the model at work (optional)",
            info="Empty suits the machine; 0 works in one process, without Ray.",
            elem_id="dataset-actors",
        )
    return PreparePart(
        chosen=chosen,
        deletion=deletion,
        files=files,
        sources=sources,
        name=name,
        language=language,
        whisper=whisper,
        actors=actors,
        prepare=prepare,
        cancel=cancel,
        progress=gr.HTML(render.NOTHING, elem_id="prepare-progress"),
        seen=gr.State(None),
        timer=gr.Timer(POLL_SECONDS, active=False),
    )


def _connect_choosing(
    context: PageContext, tab: gr.Tab, voice: VoicePart, part: PreparePart, clips: ClipsPart, shelf: ClipsShelf
) -> None:
    def refresh(
        chosen: str | None, references: list[Reference], source: Source | None, files: list[str] | None, name: str
    ) -> list[Any]:
        """The datasets there are now, and what is to be prepared."""
        names = context.studio.datasets.list()
        value = chosen if chosen in names else NEW
        loaded = context.studio.loaded
        languages = loaded.model.config.languages if loaded is not None else ()
        return [
            gr.update(choices=[("A new one", NEW), *((one, one) for one in names)], value=value),
            _sources(references, source, files),
            gr.skip() if name else proposed_name(source, names),
            gr.update(choices=[("Automatic", "auto"), *((one.title(), one) for one in languages)]),
            *_follow(context, value, None)[0],
            *shelf.open(value),
        ]

    tab.select(
        shows_errors(refresh),
        [part.chosen, voice.references, voice.source, part.files, part.name],
        [part.chosen, part.sources, part.name, part.language, *part.following, *clips.everything],
        show_progress="hidden",
        api_name="list_datasets",
        api_visibility="undocumented",
    )
    part.files.change(
        _sources, [voice.references, voice.source, part.files], part.sources, queue=False, api_visibility="private"
    )

    def choose(chosen: str | None) -> list[Any]:
        """Show another dataset."""
        names = context.studio.datasets.list()
        name = chosen or proposed_name(None, names)
        return [name, *_follow(context, chosen or NEW, None)[0], *shelf.open(chosen or NEW)]

    def without(chosen: str) -> list[Any]:
        """What is shown once the dataset on the page was deleted."""
        names = context.studio.datasets.list()
        return [gr.update(choices=[("A new one", NEW), *((one, one) for one in names)], value=NEW), *choose(chosen)]

    opened = [part.name, *part.following, *clips.everything]
    connect_deletion(context, part.deletion, part.chosen, [part.chosen, *opened], without)
    part.chosen.input(
        shows_errors(choose),
        part.chosen,
        opened,
        show_progress="hidden",
        api_name="choose_dataset",
        api_visibility="undocumented",
    )


def _connect_preparing(
    context: PageContext, voice: VoicePart, part: PreparePart, clips: ClipsPart, shelf: ClipsShelf
) -> None:
    def prepare(
        references: list[Reference],
        source: Source | None,
        transcript: str,
        files: list[str] | None,
        name: str,
        language: str,
        whisper: str | None,
        actors: str,
    ) -> list[Any]:
        """Start a build of what was given."""
        material = Material.gather(references, source, transcript, files or [])
        wanted = Preparation(name=name, language=language or "auto", whisper=whisper or "", num_actors=actors or "")
        job = plan_build(context, material, wanted)
        context.studio.datasets.start_build(job)
        choices = [("A new one", NEW), *((one, one) for one in context.studio.datasets.list())]
        return [gr.update(choices=choices, value=job.name), *_follow(context, job.name, None)[0]]

    def tick(chosen: str | None, seen: str | None) -> list[Any]:
        """How the build is doing, and its clips at its end."""
        updates, has_ended = _follow(context, chosen or NEW, seen)
        return [*updates, *(shelf.open(chosen or NEW) if has_ended else clips.unchanged)]

    def cancel(chosen: str | None) -> None:
        if chosen:
            context.studio.datasets.cancel(chosen)

    part.prepare.click(
        shows_errors(prepare),
        [
            *(voice.references, voice.source, voice.transcript, part.files),
            *(part.name, part.language, part.whisper, part.actors),
        ],
        [part.chosen, *part.following],
        show_progress="hidden",
        api_name="prepare_dataset",
        api_visibility="undocumented",
    )
    part.timer.tick(
        shows_errors(tick),
        [part.chosen, part.seen],
        [*part.following, *clips.everything],
        queue=False,
        show_progress="hidden",
        api_name="follow_dataset",
        api_visibility="undocumented",
    )
    part.cancel.click(
        shows_errors(cancel),
        part.chosen,
        None,
        queue=False,
        api_name="cancel_dataset",
        api_visibility="undocumented",
    )


def _follow(context: PageContext, name: str, seen: str | None) -> tuple[list[Any], bool]:
    """Values for `PreparePart.following`, and whether a build has ended since `seen`."""
    try:
        progress = context.studio.datasets.progress(name) if name else None
    except EncoreError:
        progress = None
    is_running = progress is not None and progress.is_running
    html = render_dataset.progress_html(progress)
    if progress is not None and not is_running and seen and is_locked(context.settings.home_folder, name):
        # Its process is about to end; until then nothing can be edited.
        is_running, html = True, render.says("", "Finishing …")
    if html == seen:
        return [gr.skip()] * 5, False
    updates = [
        html,
        html,
        gr.update(interactive=not is_running),
        gr.update(visible=is_running),
        gr.Timer(active=is_running),
    ]
    return updates, not is_running


def _sources(references: list[Reference], source: Source | None, files: list[str] | None) -> str:
    names = [reference.name for reference in references]
    if Material.gather(references, source, "", []).sample and source is not None:
        names.append(source.name)
    return render_dataset.sources_line(names, len(files or []))


def _warm_up(context: PageContext) -> None:
    threading.Thread(target=lambda: context.studio.datasets, daemon=True, name="load-ray").start()
