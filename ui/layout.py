"""The page: the bar, one tab for each of its places, the sheet behind the model, and the player."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import cast

import gradio as gr
from gradio.blocks import Block

from backend.errors import EncoreError
from backend.settings import Settings
from backend.store.copies import check_and_keep_copied
from backend.studio import Studio
from training.model.device import device_line
from ui.bar.bar import PLACES, Bar, fixed_html
from ui.bar.model import NOTHING_SHOWN, ModelChooser, Shown
from ui.context import PageContext
from ui.events import Trigger, Update, bind
from ui.html.templates import render
from ui.player.dock import build_dock
from ui.tabs.check.tab import CheckPart
from ui.tabs.compare.tab import CompareTab
from ui.tabs.dataset.tab import DatasetTab
from ui.tabs.finetune.tab import FinetuneTab
from ui.tabs.system.tab import SystemPart
from ui.tabs.voice.speak import SpeechPart
from ui.tabs.voice.tab import VoiceTab
from ui.tabs.voices.tab import VoicesTab
from ui.tuning import Tuning
from ui.web import server
from ui.web.served_files import ServedFiles
from ui.web.share_link import announce_link
from ui.web.temporary import temporary_folder

_logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
IDLE_POLL_SECONDS = 4.0
"""Another page may load a model at any time, but hardly ever does; each poll costs some milliseconds."""


def serve(settings: Settings) -> int:
    """Show the studio until interrupted; returns the exit code.

    Raises:
        EncoreError: it cannot be served as the settings say.
    """
    server.launch_options(settings)
    check_and_keep_copied(settings.home_folder)
    with temporary_folder(settings.home) as folder:
        server.set_environment(folder, settings)
        studio = Studio(settings)
        page = build_page(studio, settings, folder)
        # What was running when the program last ended goes on.
        threading.Thread(target=_resume_runs, args=(studio,), daemon=True, name="resume-runs").start()
        studio.use_storage()
        studio.start_loading(settings.model, precision=settings.precision, device=settings.device)
        address = server.launch(page, settings)
        print(f"Encore is ready: {address}  (Ctrl-C ends it)", flush=True)
        print(device_line(settings.device), flush=True)
        if settings.share:
            announce_link(page, opened=server.serve_name_of(page))
        server.wait_for_end(page)
    return 0


def _resume_runs(studio: Studio) -> None:
    try:
        studio.runs.reconcile()
    except EncoreError as error:
        _logger.warning("Interrupted fine-tunes could not be resumed: %s", error)


def build_page(studio: Studio, settings: Settings, folder: Path) -> gr.Blocks:
    """Build the page; `folder` keeps its takes and is Gradio's own temporary folder."""
    with gr.Blocks(title="Encore", analytics_enabled=False, delete_cache=(600, 86_400)) as page:
        context = PageContext(page=page, studio=studio, settings=settings, folder=folder, files=ServedFiles(folder))
        bar = Bar(context)
        voice, compare = _build_tabs(context)
        chooser = _build_sheet(context, bar, voice.speech)
        build_dock()
        _keep_up_to_date(context, bar, chooser, voice, compare)
        _say_when_opened(context)
    return cast("gr.Blocks", page)


def _build_tabs(context: PageContext) -> tuple[VoiceTab, CompareTab]:
    """One tab for each place of the bar; returns those that wait for a model."""
    with gr.Tabs(elem_id="steps"):
        with gr.Tab(PLACES["speak"], id="speak") as tab:
            voice = VoiceTab(context, tab)
            fields = voice.source.fields
        with gr.Tab(PLACES["data"], id="data") as tab:
            data = DatasetTab(context, tab, fields)
        with gr.Tab(PLACES["tune"], id="tune") as tab:
            tune = FinetuneTab(context, tab, fields, voice.speech.takes)
            tune.follow_on(data.clips.tune, data.chosen)
        with gr.Tab(PLACES["compare"], id="compare") as tab:
            compare = CompareTab(context, tab)
        with gr.Tab(PLACES["voices"], id="voices") as tab:
            tuning = Tuning(context, voice.source, data, tune)
            VoicesTab(context, tab, voice.speech.takes.browser, tuning.begin, tuning.outputs)
    return voice, compare


def _build_sheet(context: PageContext, bar: Bar, speech: SpeechPart) -> ModelChooser:
    """What the model's chip opens: the model, the machine, and whether a recording was made by Encore."""
    with gr.Column(elem_id="sheet"):
        fixed_html(render("bar", "sheet_head"), "sheet-head")
        chooser = ModelChooser(context)
        SystemPart(context, bar.model.chip.click)
        CheckPart(context, speech.takes.browser)
    return chooser


def _say_when_opened(context: PageContext) -> None:
    """Fill in what only Python can say, in the language of the visitor."""
    said = context.when_opened
    bind(context.page.load, lambda: {place: make() for place, make in said.items()}, None, list(said), quick=True)


def _keep_up_to_date(
    context: PageContext, bar: Bar, chooser: ModelChooser, voice: VoiceTab, compare: CompareTab
) -> None:
    """Poll for what has changed: loading goes on without the page, or was started by another one."""
    timer, shown = gr.Timer(POLL_SECONDS), gr.State(NOTHING_SHOWN)

    def refresh(before: Shown) -> Update:
        """Show what has changed since `before`, and poll more often while a model is loading."""
        now = chooser.what_to_show()
        if now == before:
            return {}
        rate = POLL_SECONDS if chooser.is_loading() else IDLE_POLL_SECONDS
        update: Update = {shown: now, timer: gr.Timer(rate), **bar.model.update(), **chooser.update()}
        # Only for another model: otherwise what has been filled in would be reset while a download proceeds.
        if now[0] != before[0]:
            update |= voice.speech.model_update(context.studio.loaded)
            update |= compare.model_update(context.studio.loaded)
        return update

    waiting = [*voice.speech.waiting, compare.compare]
    outputs: list[Block] = [shown, timer, bar.model.chip, *chooser.shown, *waiting]
    events: list[Trigger] = [context.page.load, timer.tick, *(event.then for event in chooser.requests)]
    opened = bind(events, refresh, {"before": shown}, outputs, quick=True)
    voice.draft.restore_after(opened.then)
