"""Which model speaks, how far loading one is, and which models there are."""

from __future__ import annotations

from markupsafe import Markup

from backend.background_tasks import TaskState
from training.model.hub.hub import EMBEDDED_MODEL, KNOWN_MODELS
from ui.html.messages import NOTHING, progress_bar, says
from ui.html.templates import html, render
from ui.html.words import DEVICES, PRECISIONS, short_name, size_in_words, time_left

EMBEDDED_NOTE = (
    " It is the small model inside Encore, made to try everything with: it speaks English and copies pitch and timbre. "
    "For voices to publish, load Qwen3-TTS under “Choose a model”."
)

CLONING_MODELS = tuple(model for model in KNOWN_MODELS if model.name.endswith("-Base"))
"""The others speak only in voices of their own."""


def model_line(name: str, precision: str, device: str) -> Markup:
    """The loaded model, its precision and its device."""
    note = EMBEDDED_NOTE if name == EMBEDDED_MODEL else ""
    return says(
        "good", html("<strong>Model: {}</strong>, {}.{}", short_name(name), running_on(precision, device), note)
    )


def running_on(precision: str, device: str) -> str:
    """Precision and device of a model."""
    return f"in {PRECISIONS.get(precision, precision)} on {DEVICES.get(device, device)}"


def no_model_line(is_loading: bool) -> Markup:
    """Stands in place of the model until there is one."""
    if is_loading:
        return says("", html("<strong>The model is loading.</strong> You can already add a recording and your text."))
    return says(
        "mixed", html("<strong>No model is loaded.</strong> Choose one below; you can add a recording and text first.")
    )


def loading_line(state: TaskState[None] | None) -> Markup:
    """Progress of loading a model, or why the last attempt failed."""
    if state is None or not (state.is_running or state.problem):
        return NOTHING
    if not state.is_running:
        return says("bad", html("<strong>{} was not loaded.</strong> {}", state.what, state.problem), role="alert")
    if not state.num_total:
        return says("", html("Loading <strong>{}</strong> …", state.what))
    done, total = state.num_done, state.num_total
    bar = progress_bar("Download", 100 * done // total)
    words = f"{size_in_words(done)} of {size_in_words(total)}{time_left(state.seconds_left)}."
    file = html("{}<p><code>{}</code></p>", bar, state.detail)
    return says("", html("Downloading <strong>{}</strong>: {}", state.what, words), more=file)


def explain_models() -> Markup:
    """Which models there are and how to get one, with and without a network."""
    return render("models", "explanation", models=CLONING_MODELS)


def model_choices() -> list[tuple[str, str]]:
    """Label and name of each model that can be picked without typing; only those that clone."""
    hub = [(f"{model.name} ({size_in_words(model.num_bytes)} download)", model.name) for model in CLONING_MODELS]
    return [("mini (inside Encore)", EMBEDDED_MODEL), *hub]
