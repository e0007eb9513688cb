"""From a voice of the library to where it is tuned, with the voice or its dataset chosen there."""

from __future__ import annotations

import gradio as gr
from gradio.blocks import Block

from backend.errors import EncoreError
from backend.voices.voice import Voice
from ui.context import PageContext
from ui.events import Update
from ui.tabs.dataset.tab import DatasetTab
from ui.tabs.finetune.tab import FinetuneTab
from ui.tabs.voice.source import SourcePart


class Tuning:
    """Makes the other tabs ready for a voice, whatever was chosen on them before."""

    def __init__(self, context: PageContext, source: SourcePart, data: DatasetTab, tune: FinetuneTab) -> None:
        self._studio, self._source, self._data, self._tune = context.studio, source, data, tune

    @property
    def outputs(self) -> list[Block]:
        """What `begin` changes."""
        changed = [*self._source.chosen, *self._data.beginning, *self._tune.choosing]
        return list(dict.fromkeys(changed))

    def begin(self, voice: Voice, request: gr.Request) -> tuple[str, Update]:
        """The tab to go to, and what changes. A voice has its dataset, or its run, or else the recording it has."""
        datasets, dataset = self._studio.datasets, voice.provenance.get("dataset")
        if isinstance(dataset, str) and dataset in datasets.list() and datasets.is_built(dataset):
            return "tune", self._tune.choose(dataset)
        if voice.run_id is not None and self._has_run(voice.run_id):
            return "tune", self._tune.watch.refresh(voice.run_id)
        return "data", {**self._source.use("voice", voice.id, request), **self._data.begin()}

    def _has_run(self, run_id: str) -> bool:
        try:
            self._studio.runs.get(run_id)
        except EncoreError:
            return False
        return True
