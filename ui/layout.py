"""The page: the model above, one tab for each step of the work, and what keeps them up to date."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import gradio as gr

from backend.errors import EncoreError
from backend.settings import Settings
from backend.studio import Studio
from ui import model_bar
from ui.context import PageContext
from ui.live.stop_flags import StopFlags
from ui.tabs.compare import tab as compare
from ui.tabs.dataset import tab as dataset
from ui.tabs.finetune import tab as finetune
from ui.tabs.library import tab as library
from ui.tabs.system import tab as system
from ui.tabs.voice import tab as voice
from ui.web import server
from ui.web.served_files import ServedFiles
from ui.web.share_link import announce_link
from ui.web.temporary import temporary_folder

_logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
IDLE_POLL_SECONDS = 4.0
"""Another page may load a model at any time, but hardly ever does; each look costs some milliseconds."""

HEADER = (
    "<h1>Encore</h1><p>Clone a voice from a short recording and hear it say anything. "
    "All of it happens on this machine; no recording leaves it.</p>"
)


def serve(settings: Settings) -> int:
    """Show the studio until interrupted; returns the exit code.

    Raises:
        EncoreError: it cannot be served as the settings say.
    """
    server.launch_options(settings)
    with temporary_folder(settings.home) as folder:
        server.set_environment(folder)
        studio = Studio(settings)
        page = build_page(studio, settings, folder)
        # What was at work when the program last ended goes on.
        threading.Thread(target=_look_after_runs, args=(studio,), daemon=True, name="look-after-runs").start()
        studio.start_loading(settings.model, precision=settings.precision, device=settings.device)
        address = server.launch(page, settings)
        print(f"Encore is ready: {address}  (Ctrl-C ends it)", flush=True)
        if settings.share:
            announce_link(page)
        server.wait_for_end(page)
    return 0


def _look_after_runs(studio: Studio) -> None:
    try:
        studio.runs.reconcile()
    except EncoreError as error:
        _logger.warning("Interrupted fine-tunes could not be looked after: %s", error)


def build_page(studio: Studio, settings: Settings, folder: Path) -> gr.Blocks:
    """Build the page; `folder` keeps its takes and is Gradio's own temporary folder."""
    with gr.Blocks(title="Encore", analytics_enabled=False, delete_cache=(600, 86_400)) as page:
        gr.HTML(HEADER, elem_classes=["encore-header"])
        bar = model_bar.build_model_bar(settings)
        context = PageContext(
            page=page, studio=studio, settings=settings, folder=folder, files=ServedFiles(folder), flags=StopFlags()
        )
        speech = _build_tabs(context)
        asked = model_bar.connect_loading(studio, settings, bar)
        timer = gr.Timer(POLL_SECONDS)
        _keep_up_to_date([page.load, timer.tick, *(event.then for event in asked)], studio, bar, speech, timer)
    return cast("gr.Blocks", page)


def _build_tabs(context: PageContext) -> voice.SpeechPart:
    """One tab for each step, in the order of the work; returns what waits for a model."""
    with gr.Tabs(elem_id="steps"):
        with gr.Tab("Voice", id="voice") as tab:
            recordings, speech = voice.build_voice_tab(context, tab)
        with gr.Tab("Dataset", id="dataset") as tab:
            dataset.build_dataset_tab(context, tab, recordings)
        with gr.Tab("Fine-tune", id="fine-tune") as tab:
            finetune.build_finetune_tab(context, tab, recordings)
        with gr.Tab("Compare", id="compare") as tab:
            compare.build_compare_tab(context, tab)
        with gr.Tab("Library", id="library") as tab:
            library.build_library_tab(context, tab)
        with gr.Tab("System", id="system") as tab:
            system.build_system_tab(context, tab)
    return speech


def _keep_up_to_date(
    events: Sequence[Callable[..., Any]],
    studio: Studio,
    bar: model_bar.ModelBar,
    speech: voice.SpeechPart,
    timer: gr.Timer,
) -> None:
    """Ask at these events what has changed: loading goes on without the page, or was started by another one."""
    shown = gr.State(model_bar.NOTHING_SHOWN)
    outputs: list[Any] = [shown, timer, *bar.outputs, bar.chooser, *speech.waiting]

    def refresh(before: model_bar.Shown) -> Any:
        """Show another model where it has changed; nothing is sent where it has not."""
        now = model_bar.what_to_show(studio)
        if now == before:
            return gr.skip()
        has_other_model = now[0] != before[0]
        # Only for another model: otherwise what the person has set would be reset while a download proceeds.
        voices = voice.model_updates(studio.loaded) if has_other_model else [gr.skip()] * len(speech.waiting)
        chooser = gr.update(open=studio.loaded is None) if has_other_model else gr.skip()
        pace = gr.Timer(POLL_SECONDS if model_bar.is_loading(studio) else IDLE_POLL_SECONDS)
        return [now, pace, *model_bar.bar_updates(studio), chooser, *voices]

    for event in events:
        event(refresh, shown, outputs, queue=False, show_progress="hidden", api_visibility="private")
