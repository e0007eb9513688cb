"""Which model speaks, and choosing another: above the tabs, because all of them wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.events import Dependency

from backend.settings import Settings
from backend.studio import LoadedModel, Studio
from ui.errors import shows_errors
from ui.html import base as render

Shown = tuple[str, str]
"""What a page shows: the loaded model and the state of a loading, each as a text to compare."""

NOTHING_SHOWN: Shown = ("?", "?")


@dataclass(frozen=True, kw_only=True)
class ModelBar:
    """Its components."""

    status: gr.HTML
    chooser: gr.Accordion
    choice: gr.Dropdown
    load: gr.Button
    cancel: gr.Button
    loading: gr.HTML

    @property
    def outputs(self) -> list[gr.components.Component | gr.Accordion]:
        """What `bar_updates` gives values for, in this order."""
        return [self.status, self.load, self.cancel, self.loading]


def build_model_bar(settings: Settings) -> ModelBar:
    """Lay the bar out; `connect_loading` makes it work."""
    status = gr.HTML(render.no_model_line(is_loading=True), elem_id="model")
    with gr.Accordion("Choose a model", open=True, elem_id="model-chooser") as chooser:
        with gr.Row(elem_classes=["choose"]):
            choice = gr.Dropdown(
                render.model_choices(),
                value=settings.model,
                label="Model",
                info="Pick one, or type a folder or a hub name.",
                allow_custom_value=True,
                scale=3,
                min_width=260,
                elem_id="model-choice",
            )
            load = gr.Button("Load", variant="primary", scale=1, min_width=120, elem_id="load")
            cancel = gr.Button("Cancel", visible=False, scale=1, min_width=120, elem_id="cancel-load")
        loading = gr.HTML(render.NOTHING, elem_id="loading")
        gr.HTML(render.explain_models(), elem_id="explanation")
    return ModelBar(
        status=status,
        chooser=chooser,
        choice=choice,
        load=load,
        cancel=cancel,
        loading=loading,
    )


def connect_loading(studio: Studio, settings: Settings, bar: ModelBar) -> list[Dependency]:
    """Make Load and Cancel work; returns both events, after which the page has something new to show."""

    def load(name: str | None) -> None:
        studio.start_loading((name or "").strip(), precision=settings.precision, device=settings.device)

    return [
        bar.load.click(
            shows_errors(load), bar.choice, None, queue=False, api_name="load_model", api_visibility="undocumented"
        ),
        bar.cancel.click(studio.cancel_loading, None, None, queue=False, api_visibility="private"),
    ]


def what_to_show(studio: Studio) -> Shown:
    """What a page should show now; equal to what it shows when there is nothing to update."""
    loaded = studio.loaded
    return (f"{loaded.name} {id(loaded)}" if loaded is not None else "", repr(studio.loading))


def is_loading(studio: Studio) -> bool:
    """Whether a model is on its way."""
    return studio.loading is not None and studio.loading.is_running


def bar_updates(studio: Studio) -> list[Any]:
    """Updates for `ModelBar.outputs`."""
    loaded, loading, is_busy = studio.loaded, studio.loading, is_loading(studio)
    return [
        _status(loaded, is_busy),
        gr.update(interactive=not is_busy),
        gr.update(visible=is_busy and loading is not None and loading.progress is not None),
        render.loading_line(loading),
    ]


def _status(loaded: LoadedModel | None, is_busy: bool) -> str:
    if loaded is None:
        return render.no_model_line(is_busy)
    return render.model_line(loaded.name, loaded.model.precision, loaded.model.device.type)
