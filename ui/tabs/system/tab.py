"""The system tab: what Encore runs on, what is missing, and how to get it."""

from __future__ import annotations

from typing import Any

import gradio as gr

from backend.background_tasks import BackgroundTask, BackgroundTasks
from backend.cluster.errors import ClusterError
from backend.cluster.size import ask_cluster
from backend.doctor.checks import examine
from backend.doctor.inventory import fetch_whisper, take_inventory
from backend.transcription.catalogue import PUBLISHED_WHISPERS
from training.machine import Machine
from ui.context import PageContext
from ui.errors import shows_errors
from ui.html import base as render
from ui.tabs.system import render as render_system

POLL_SECONDS = 0.7
EXAMINE, FETCH = "examine", "fetch"

Values = list[Any]
"""For Gradio: one for each output."""


class SystemView:
    """What the handlers of this tab do. All sessions see the same machine, so they share the work."""

    def __init__(self, context: PageContext) -> None:
        self._bench = context
        self._errands = BackgroundTasks()

    def look(self) -> Values:
        """Begin to examine the machine, unless somebody has just begun."""
        state = self._errands.state(EXAMINE)
        if state is None or not state.is_running:
            self._errands.start(EXAMINE, "Looking at this machine", self._examine)
        return self.follow()

    def follow(self) -> Values:
        """The model in use, findings, the download, its buttons, and the timer."""
        loaded = self._bench.studio.loaded
        model = render_system.model_in_use(
            loaded.name if loaded is not None else None,
            loaded.model.precision if loaded is not None else "",
            loaded.model.device.type if loaded is not None else "",
        )
        examined, fetching = self._errands.state(EXAMINE), self._errands.state(FETCH)
        found: Any = gr.skip()
        if examined is not None and isinstance(examined.result, render_system.Examined):
            found = render_system.examined_html(examined.result)
        elif examined is not None and examined.problem:
            found = render.says("bad", render.escaped(examined.problem), role="alert")
        is_fetching = fetching is not None and fetching.is_running
        is_busy = is_fetching or (examined is not None and examined.is_running)
        return [
            model,
            found,
            render_system.download_line(fetching),
            gr.update(interactive=not is_fetching),
            gr.update(visible=is_fetching),
            gr.Timer(active=is_busy),
        ]

    def fetch(self, name: str) -> Values:
        """Begin to download a Whisper model. Raises TaskRefused."""

        def work(task: BackgroundTask) -> object:
            # The download's own words tell that what has arrived is kept.
            return fetch_whisper(name, lambda done: task.tell(done.bytes_done, done.bytes_total), task.is_cancelled)

        self._errands.start(FETCH, f"Whisper {name}", work)
        return self.follow()

    def cancel(self) -> None:
        """Stop the download; what has arrived is kept."""
        self._errands.cancel(FETCH)

    def _examine(self, _: BackgroundTask) -> object:
        machine = Machine.here()
        size, problem = None, ""
        if machine.address is not None:
            try:
                size = ask_cluster(machine.address)
            except ClusterError as error:
                problem = str(error)
        return render_system.Examined(
            findings=tuple(examine(self._bench.settings)),
            inventory=take_inventory(self._bench.settings),
            num_cpus=machine.num_cpus,
            num_gpus=machine.num_gpus,
            cluster=machine.address,
            size=size,
            problem=problem,
        )


def build_system_tab(context: PageContext, tab: gr.Tab) -> None:
    """Lay the tab out and connect its events."""
    machine = SystemView(context)
    gr.HTML("<h2>System</h2>", elem_classes=["step"])
    model = gr.HTML(render.NOTHING, elem_id="model-in-use")
    again = gr.Button("Look again", elem_id="look-again")
    found = gr.HTML(render.says("", "Looking at this machine …"), elem_id="findings")
    gr.HTML("<h2>Get a Whisper model</h2>", elem_classes=["step"])
    with gr.Row(elem_classes=["choose"]):
        choices = [(f"{one.name} ({render.size_in_words(one.num_bytes)})", one.name) for one in PUBLISHED_WHISPERS]
        name = gr.Dropdown(choices, value="base", label="Whisper model", scale=3, min_width=180, elem_id="whisper")
        fetch = gr.Button("Download", variant="primary", scale=1, min_width=120, elem_id="fetch-whisper")
        cancel = gr.Button("Cancel", visible=False, scale=1, min_width=120, elem_id="cancel-whisper")
    fetched = gr.HTML(render.NOTHING, elem_id="whisper-download")
    with gr.Accordion("How to load Qwen3-TTS", open=False, elem_id="how-to-load"):
        gr.HTML(render.explain_models())
    timer = gr.Timer(POLL_SECONDS, active=False)
    outputs = [model, found, fetched, fetch, cancel, timer]
    for event, handler, inputs, called in (
        (tab.select, machine.look, None, "examine_system"),
        (again.click, machine.look, None, None),
        (timer.tick, machine.follow, None, "follow_system"),
        (fetch.click, machine.fetch, name, "fetch_whisper"),
    ):
        event(
            shows_errors(handler),
            inputs,
            outputs,
            queue=False,
            show_progress="hidden",
            api_name=called,
            api_visibility="undocumented" if called else "private",
        )
    cancel.click(machine.cancel, None, None, queue=False, api_name="cancel_whisper", api_visibility="undocumented")
