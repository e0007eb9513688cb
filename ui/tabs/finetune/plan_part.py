"""What is filled in before a fine-tune, laid out: dataset, name, preset, consent, and what else can be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from backend.voices.consent import STATEMENTS
from training.job import STRATEGIES
from training.presets import PRESETS
from ui.html import base as render
from ui.tabs.finetune import render as render_finetune
from ui.tabs.finetune.plan import FROM_DATA

POLL_SECONDS = 0.7


@dataclass(frozen=True, kw_only=True)
class PlanPart:
    """Its components."""

    dataset: gr.Dropdown
    voice: gr.Textbox
    preset: gr.Radio
    statement: gr.Radio
    who: gr.Textbox
    plan: gr.HTML
    memory: gr.HTML
    advanced: tuple[Any, ...]
    start: gr.Button
    cancel: gr.Button
    status: gr.HTML
    seen: gr.State
    timer: gr.Timer

    @property
    def wish(self) -> list[Any]:
        """The fields of a `Wish`, in their order."""
        return [self.dataset, self.preset, *self.advanced]

    @property
    def planned(self) -> list[Any]:
        """What the tab gives values for once there is a plan, or why there is none."""
        return [self.seen, self.plan, self.memory, self.start, self.timer]


def build_plan_part() -> PlanPart:
    """Lay it out."""
    with gr.Row():
        dataset = gr.Dropdown([], value=None, label="Dataset", min_width=200, elem_id="tune-dataset")
        voice = gr.Textbox(label="Name of the new voice", max_length=64, min_width=200, elem_id="tune-voice")
    preset = gr.Radio(
        [("Chosen from the data", FROM_DATA), *((render_finetune.PRESET_WORDS[one], one) for one in PRESETS)],
        value=FROM_DATA,
        label="How thorough",
        elem_id="preset",
    )
    statement = gr.Radio(
        [(words, kind) for kind, words in STATEMENTS.items()],
        label="Consent",
        info="A voice is cloned only with the consent of whoever speaks. It is stored with the voice.",
        elem_id="tune-consent",
    )
    who = gr.Textbox(label="Your name, for the consent", max_length=200, elem_id="tune-who")
    plan = gr.HTML(render.NOTHING, elem_id="plan")
    start = gr.Button("Fine-tune", variant="primary", elem_id="start-run")
    cancel = gr.Button("Cancel", visible=False, elem_id="cancel-start")
    status = gr.HTML(render.NOTHING, elem_id="start-status")
    with gr.Accordion("Memory for each worker", open=True, elem_id="memory"):
        memory = gr.HTML(render_finetune.NO_MEMORY_YET, elem_id="memory-picture")
    return PlanPart(
        dataset=dataset,
        voice=voice,
        preset=preset,
        statement=statement,
        who=who,
        plan=plan,
        memory=memory,
        advanced=_build_advanced(),
        start=start,
        cancel=cancel,
        status=status,
        seen=gr.State(""),
        timer=gr.Timer(POLL_SECONDS, active=False),
    )


def _build_advanced() -> tuple[Any, ...]:
    """In the order of the fields of `Wish`."""
    # Not gr.Number, which turns an empty field into 0.
    with gr.Accordion("Advanced", open=False, elem_id="tune-advanced"):
        with gr.Row():
            strategy = gr.Dropdown(list(STRATEGIES), value="ddp", label="Strategy: how workers share the model")
            workers = gr.Textbox(label="Workers", placeholder="1", max_length=4, elem_id="workers")
            device = gr.Dropdown(["auto", "cpu", "cuda"], value="auto", label="Device")
        with gr.Row():
            rate = gr.Textbox(label="Learning rate (optional)", placeholder="by the preset", elem_id="learning-rate")
            steps = gr.Textbox(label="Steps (optional)", placeholder="by the preset", max_length=7, elem_id="num-steps")
            rows = gr.Textbox(label="Rows in a micro-batch (optional)", placeholder="by the preset", max_length=6)
        saves_memory = gr.Checkbox(label="Compute activations twice: a third slower, much less memory")
    return strategy, workers, device, rate, steps, rows, saves_memory
