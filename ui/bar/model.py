"""The model: a chip in the bar that says which one speaks, and the sheet in which another is chosen."""

from __future__ import annotations

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency
from markupsafe import Markup

from training.model.hub.hub import short_name
from ui.context import PageContext
from ui.events import Update, bind
from ui.html.messages import NOTHING
from ui.html.models import explain_models, loading_line, model_choices, model_line, no_model_line
from ui.html.templates import render
from ui.words.words import say, word

DEVICE_SIGNS = {"cpu": "CPU", "cuda": "GPU", "mps": "GPU", "xpu": "GPU"}

Shown = tuple[str, str]
"""What a page shows: the loaded model and the state of a loading, each as a text to compare."""

NOTHING_SHOWN: Shown = ("?", "?")


class ModelPart:
    """The chip; it stands in the bar."""

    def __init__(self, context: PageContext) -> None:
        self._studio = context.studio
        self.chip = gr.HTML(
            render("bar", "chip", state="busy", name="…", device=""),
            elem_id="model-chip",
            js_on_load="element.addEventListener('click', () => { encore.sheet.open(); trigger('click'); })",
            apply_default_css=False,
        )

    def update(self) -> Update:
        """The loaded model, or that there is none."""
        loaded, loading = self._studio.loaded, self._studio.loading
        if loading is not None and loading.is_running:
            return {self.chip: _chip("busy", say("bar.loading", name=short_name(loading.what)))}
        if loaded is None:
            return {self.chip: _chip("missing", say("bar.no_model"))}
        facts = loaded.facts
        sign = DEVICE_SIGNS.get(facts.device, facts.device)
        where = say("bar.there", device=sign) if facts.cluster else sign
        return {self.chip: _chip("ready", short_name(loaded.name), where)}


class ModelChooser:
    """The loaded model in full, and a way to load another; `requests` are the events that ask for a change."""

    def __init__(self, context: PageContext) -> None:
        self._studio, self._settings = context.studio, context.settings
        self.status = gr.HTML(no_model_line(is_loading=True), elem_id="model")
        with gr.Row(elem_classes=["choose"]):
            self.choice = gr.Dropdown(
                model_choices(),
                value=self._settings.model,
                label=word("sheet.model"),
                info=word("sheet.model_help"),
                allow_custom_value=True,
                scale=3,
                min_width=200,
                elem_id="model-choice",
            )
            self.where = gr.Radio(
                [(word("sheet.there"), True), (word("sheet.here"), False)],
                value=True,
                label=word("sheet.where"),
                visible=self._studio.cluster is not None,
                scale=2,
                min_width=160,
                elem_id="where",
            )
            self.load = gr.Button(word("sheet.load"), variant="primary", scale=1, min_width=100, elem_id="load")
            self.cancel = gr.Button(word("sheet.cancel"), visible=False, scale=1, min_width=100, elem_id="cancel-load")
        self.loading = gr.HTML(NOTHING, elem_id="loading")
        explanation = gr.HTML(explain_models(), elem_id="explanation")
        context.when_opened[self.choice] = lambda: gr.update(choices=model_choices())
        context.when_opened[explanation] = explain_models
        self.requests: list[Dependency] = [
            bind(self.load.click, self._load, {"name": self.choice, "there": self.where}, api="load_model", quick=True),
            bind(self.cancel.click, self._studio.cancel_loading, quick=True),
        ]

    @property
    def shown(self) -> list[Component]:
        """What `update` changes."""
        return [self.status, self.load, self.cancel, self.loading]

    def what_to_show(self) -> Shown:
        """Equal to what a page shows already if there is nothing to update."""
        loaded = self._studio.loaded
        return (f"{loaded.name} {id(loaded)}" if loaded is not None else "", repr(self._studio.loading))

    def is_loading(self) -> bool:
        """Whether a model is being loaded."""
        return self._studio.loading is not None and self._studio.loading.is_running

    def update(self) -> Update:
        """The loaded model, and how far loading another is."""
        loaded, loading, is_busy = self._studio.loaded, self._studio.loading, self.is_loading()
        status = no_model_line(is_busy)
        if loaded is not None:
            status = model_line(loaded.facts)
        can_cancel = is_busy and loading is not None and (loading.num_total > 0 or bool(loading.detail))
        return {
            self.status: status,
            self.load: gr.update(interactive=not is_busy),
            self.cancel: gr.update(visible=can_cancel),
            self.loading: loading_line(loading),
        }

    def _load(self, name: str | None, there: bool | None) -> None:
        settings, is_there = self._settings, bool(there) and self._studio.cluster is not None
        self._studio.start_loading(
            (name or "").strip(), precision=settings.precision, device=settings.device, on_cluster=is_there
        )


def _chip(state: str, name: str, device: str = "") -> Markup:
    return render("bar", "chip", state=state, name=name, device=device)
