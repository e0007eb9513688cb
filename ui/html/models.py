"""Which model speaks, how far loading one is, and which models there are."""

from __future__ import annotations

from markupsafe import Markup

from backend.background_tasks import TaskState
from backend.serving.loaded_model import ModelFacts
from training.model.hub.hub import EMBEDDED_MODEL, KNOWN_MODELS, short_name
from ui.html.messages import NOTHING, progress_bar, says
from ui.html.templates import html, render
from ui.html.words import size_in_words, time_left
from ui.words.sentences import translated
from ui.words.words import say

PRECISIONS = {"fp32": "model.full", "bf16": "model.half", "int8": "model.eight"}
DEVICES = {"cpu": "model.cpu", "cuda": "model.gpu", "mps": "model.gpu", "xpu": "model.gpu"}

CLONING_MODELS = tuple(model for model in KNOWN_MODELS if model.name.endswith("-Base"))
"""The others speak only in voices of their own."""


def model_line(facts: ModelFacts) -> Markup:
    """The loaded model, its precision and its device, and where that is."""
    note = f" {say('model.embedded')}" if facts.name == EMBEDDED_MODEL else ""
    title, running = say("model.is", name=short_name(facts.name)), running_on(facts.precision, facts.device)
    if facts.cluster:
        running = say("model.there", running=running, address=facts.cluster)
    return says("good", html("<strong>{}</strong>, {}.{}", title, running, note))


def running_on(precision: str, device: str) -> str:
    """Precision and device of a model."""
    words = say(PRECISIONS[precision]) if precision in PRECISIONS else precision
    return say("model.runs", precision=words, device=say(DEVICES[device]) if device in DEVICES else device)


def no_model_line(is_loading: bool) -> Markup:
    """Stands in place of the model until there is one."""
    if is_loading:
        return says("", html("<strong>{}</strong> {}", say("model.is_loading"), say("model.meanwhile")))
    return says("mixed", html("<strong>{}</strong> {}", say("model.none"), say("model.choose")))


def loading_line(state: TaskState[None] | None) -> Markup:
    """Progress of loading a model, or why the last attempt failed."""
    if state is None or not (state.is_running or state.problem):
        return NOTHING
    if not state.is_running:
        failed = html("<strong>{}</strong> {}", say("model.not_loaded", name=state.what), translated(state.problem))
        return says("bad", failed, role="alert")
    if not state.num_total:
        return says("", f"{say('bar.loading', name=state.what)} …")
    done, total = state.num_done, state.num_total
    bar = progress_bar(say("system.download"), 100 * done // total)
    sizes = {"done": size_in_words(done), "total": size_in_words(total), "left": time_left(state.seconds_left)}
    file = html("{}<p><code>{}</code></p>", bar, state.detail)
    return says("", say("model.downloading", name=state.what, **sizes), more=file)


def explain_models() -> Markup:
    """Which models there are and how to get one, with and without a network."""
    return render("models", "explanation", models=CLONING_MODELS)


def model_choices() -> list[tuple[str, str]]:
    """Label and name of each model that can be picked without typing; only those that clone."""
    hub = [
        (say("model.to_download", name=model.name, size=size_in_words(model.num_bytes)), model.name)
        for model in CLONING_MODELS
    ]
    return [(say("model.inside"), EMBEDDED_MODEL), *hub]
