"""System, in the sheet behind the model: what Encore runs on, what is missing, and how to get it."""

from __future__ import annotations

import gradio as gr

from backend.background_tasks import BackgroundTask, BackgroundTasks
from backend.cluster.errors import ClusterError
from backend.cluster.size import ask_cluster
from backend.doctor.checks import examine
from backend.doctor.inventory import fetch_whisper, take_inventory
from backend.transcription.catalogue import PUBLISHED_WHISPERS
from training.machine import Machine
from ui.context import PageContext
from ui.events import Trigger, Update, bind
from ui.fields import build_title
from ui.html.messages import NOTHING, failure, says
from ui.html.words import size_in_words
from ui.tabs.system.render import Examined, download_line, examined_html
from ui.words.words import say, word

POLL_SECONDS = 0.7
_KEY = "machine"
"""All sessions see the same machine, so they share the work."""


class SystemPart:
    """Examines the machine and downloads Whisper models."""

    def __init__(self, context: PageContext, opened: Trigger) -> None:
        """Lay it out; the machine is examined whenever it is `opened`."""
        self.context = context
        self._examining: BackgroundTasks[Examined] = BackgroundTasks()
        self._fetching: BackgroundTasks[None] = BackgroundTasks()
        build_title("system.title")
        self.again = gr.Button(word("system.again"), elem_id="look-again")
        self.found = gr.HTML(NOTHING, elem_id="findings")
        build_title("system.get")
        with gr.Row(elem_classes=["choose"]):
            choices = [(f"{one.name} ({size_in_words(one.num_bytes)})", one.name) for one in PUBLISHED_WHISPERS]
            self.name = gr.Dropdown(
                choices, value="base", label=word("data.whisper"), scale=3, min_width=180, elem_id="whisper"
            )
            self.fetch = gr.Button(
                word("system.download"), variant="primary", scale=1, min_width=120, elem_id="fetch-whisper"
            )
            self.cancel = gr.Button(
                word("sheet.cancel"), visible=False, scale=1, min_width=120, elem_id="cancel-whisper"
            )
        self.fetched = gr.HTML(NOTHING, elem_id="whisper-download")
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        shown = [self.found, self.fetched, self.fetch, self.cancel, self.timer]
        bind([opened, self.again.click], self._examine, None, shown, api="examine_system", quick=True)
        bind(self.timer.tick, self._follow, None, shown, api="follow_system", quick=True)
        bind(self.fetch.click, self._fetch, {"name": self.name}, shown, api="fetch_whisper", quick=True)
        bind(self.cancel.click, self._cancel, api="cancel_whisper", quick=True)

    def _examine(self) -> Update:
        """Start to examine the machine, unless another session has just done so."""
        state = self._examining.state(_KEY)
        if state is None or not state.is_running:
            self._examining.start(_KEY, say("system.examining"), self._look)
        return self._follow()

    def _follow(self) -> Update:
        """Findings, and the download."""
        examining, fetching = self._examining.state(_KEY), self._fetching.state(_KEY)
        is_fetching = fetching is not None and fetching.is_running
        update: Update = {
            self.fetched: download_line(fetching),
            self.fetch: gr.update(interactive=not is_fetching),
            self.cancel: gr.update(visible=is_fetching),
            self.timer: gr.Timer(active=is_fetching or (examining is not None and examining.is_running)),
        }
        if examining is not None and examining.result is not None:
            update[self.found] = examined_html(examining.result)
        elif examining is not None:
            update[self.found] = (
                failure(examining.problem) if examining.problem else says("", f"{say('system.examining')} …")
            )
        return update

    def _fetch(self, name: str) -> Update:
        """Start to download a Whisper model. Raises TaskBusy."""

        def work(task: BackgroundTask[None]) -> None:
            """Download, and report bytes."""
            # The download's own words tell that what has arrived is kept.
            fetch_whisper(name, lambda done: task.tell(done.bytes_done, done.bytes_total), task.is_cancelled)

        self._fetching.start(_KEY, f"Whisper {name}", work)
        return self._follow()

    def _cancel(self) -> None:
        """Stop the download; what has arrived is kept."""
        self._fetching.cancel(_KEY)

    def _look(self, _: BackgroundTask[Examined]) -> Examined:
        settings, machine = self.context.settings, Machine.here()
        size, problem, loaded = None, "", self.context.studio.loaded
        if machine.address is not None:
            try:
                size = ask_cluster(machine.address)
            except ClusterError as error:
                problem = str(error)
        return Examined(
            findings=tuple(examine(settings)),
            inventory=take_inventory(settings),
            num_cpus=machine.num_cpus,
            num_gpus=machine.num_gpus,
            cluster=machine.address,
            size=size,
            problem=problem,
            speaks_on=loaded.facts.cluster if loaded is not None else "",
            memory=loaded.memory() if loaded is not None else {},
            num_adapters=sum(one.num_adapters for one in loaded.statistics().values()) if loaded is not None else 0,
        )
