"""The page: the model above, one tab for each step of the work, and what keeps them up to date."""

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
from ui.context import PageContext
from ui.events import Trigger, Update, bind
from ui.model_bar import NOTHING_SHOWN, ModelBar, Shown
from ui.tabs.check.tab import CheckTab
from ui.tabs.compare.tab import CompareTab
from ui.tabs.dataset.tab import DatasetTab
from ui.tabs.finetune.tab import FinetuneTab
from ui.tabs.library.tab import LibraryTab
from ui.tabs.system.tab import SystemTab
from ui.tabs.voice.speak import SpeechPart
from ui.tabs.voice.tab import VoiceTab
from ui.web import server
from ui.web.served_files import ServedFiles
from ui.web.share_link import announce_link
from ui.web.temporary import temporary_folder

_logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
IDLE_POLL_SECONDS = 4.0
"""Another page may load a model at any time, but hardly ever does; each poll costs some milliseconds."""

HEADER = (
    "<h1>Encore</h1><p>Clone a voice from a short recording and hear it say anything. "
    "Everything happens on this machine; no recording leaves it.</p>"
)

LOG_OUT = "() => fetch('logout', {method: 'POST'}).finally(() => location.reload())"


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
        studio.start_loading(settings.model, precision=settings.precision, device=settings.device)
        address = server.launch(page, settings)
        print(f"Encore is ready: {address}  (Ctrl-C ends it)", flush=True)
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
        gr.HTML(HEADER, elem_classes=["encore-header"])
        if settings.auth is not None:
            gr.Button("Log out", size="sm", elem_id="log-out").click(None, js=LOG_OUT)
        bar = ModelBar(studio, settings)
        context = PageContext(page=page, studio=studio, settings=settings, folder=folder, files=ServedFiles(folder))
        _keep_up_to_date(context, bar, _build_tabs(context))
    return cast("gr.Blocks", page)


def _build_tabs(context: PageContext) -> SpeechPart:
    """One tab for each step, in the order of the work; returns what waits for a model."""
    with gr.Tabs(elem_id="steps"):
        with gr.Tab("Voice", id="voice") as tab:
            voice = VoiceTab(context, tab)
            fields = voice.source.fields
        with gr.Tab("Dataset", id="dataset") as tab:
            DatasetTab(context, tab, fields)
        with gr.Tab("Fine-tune", id="fine-tune") as tab:
            FinetuneTab(context, tab, fields)
        with gr.Tab("Compare", id="compare") as tab:
            CompareTab(context, tab)
        with gr.Tab("Library", id="library") as tab:
            LibraryTab(context, tab)
        with gr.Tab("Check", id="check"):
            CheckTab(context, voice.speech.takes.browser)
        with gr.Tab("System", id="system") as tab:
            SystemTab(context, tab)
    return voice.speech


def _keep_up_to_date(context: PageContext, bar: ModelBar, speech: SpeechPart) -> None:
    """Poll for what has changed: loading goes on without the page, or was started by another one."""
    timer, shown = gr.Timer(POLL_SECONDS), gr.State(NOTHING_SHOWN)

    def refresh(before: Shown) -> Update:
        """Show what has changed since `before`, and poll more often while a model is loading."""
        now = bar.what_to_show()
        if now == before:
            return {}
        rate = POLL_SECONDS if bar.is_loading() else IDLE_POLL_SECONDS
        update: Update = {shown: now, timer: gr.Timer(rate), **bar.update()}
        # Only for another model: otherwise what has been filled in would be reset while a download proceeds.
        if now[0] != before[0]:
            loaded = context.studio.loaded
            update |= {bar.chooser: gr.update(open=loaded is None), **speech.model_update(loaded)}
        return update

    outputs: list[Block] = [shown, timer, bar.status, bar.load, bar.cancel, bar.loading, bar.chooser, *speech.waiting]
    events: list[Trigger] = [context.page.load, timer.tick, *(event.then for event in bar.requests)]
    bind(events, refresh, {"before": shown}, outputs, quick=True)
