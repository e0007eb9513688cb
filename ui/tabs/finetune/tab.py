"""The Tune tab: a run planned and started; watching it is `watch`."""

from __future__ import annotations

import math
from typing import Any

import gradio as gr
from gradio.blocks import Block

from backend.dataset.sources.material import proposed_name
from backend.voices.consent import Consent, SpokenProof
from backend.voices.errors import ConsentMissing
from training.job import STRATEGIES
from training.presets import PRESETS
from ui.consent import OTHER_RECORDING, Stated
from ui.context import PageContext
from ui.events import Inputs, Update, bind, session_of
from ui.fields import build_consent
from ui.html.consents import consents_html
from ui.html.messages import NOTHING, heading, note, says, task_line
from ui.material import gather_material, voice_name
from ui.source import Reference, Source, VoiceFields
from ui.tabs.finetune.plan import FROM_DATA, MADE_FIRST, MAKING_CLIPS, Planner, Wish
from ui.tabs.finetune.render import (
    ABOUT,
    NO_MEMORY_YET,
    NOTHING_TO_LEARN_FROM,
    PRESET_WORDS,
    STARTED,
    made_first,
    memory_html,
    plan_html,
)
from ui.tabs.finetune.watch import RunWatch

POLL_SECONDS = 0.7
SETTLED_SECONDS = 10.0
"""Answers to a poll and to a change may overtake each other; a page that stopped polling at the first end might miss
the plan for what was typed since."""


class FinetuneTab:
    """Plans what is filled in, starts it, and shows the runs."""

    def __init__(self, context: PageContext, tab: gr.Tab, voice: VoiceFields) -> None:
        self.context, self.voice, self.planner = context, voice, Planner(context)
        gr.HTML(heading("Fine-tune"), elem_classes=["step"])
        gr.HTML(note(ABOUT))
        with gr.Row():
            self.dataset = gr.Dropdown([], value=None, label="Dataset", min_width=200, elem_id="tune-dataset")
            self.name = gr.Textbox(label="Name of the new voice", max_length=64, min_width=200, elem_id="tune-voice")
        self.preset = gr.Radio(
            [("Chosen from the data", FROM_DATA), *((PRESET_WORDS[one], one) for one in PRESETS)],
            value=FROM_DATA,
            label="How thorough",
            elem_id="preset",
        )
        self.consent = gr.HTML(NOTHING, elem_id="tune-consents")
        with gr.Column(visible=False, elem_id="tune-asks-consent") as self.asking:
            self.statement, self.who = build_consent("tune-")
        self.signed = gr.State("")
        self.plan = gr.HTML(NOTHING, elem_id="plan")
        self.start = gr.Button("Fine-tune", variant="primary", elem_id="start-run")
        self.cancel = gr.Button("Cancel", visible=False, elem_id="cancel-start")
        self.status = gr.HTML(NOTHING, elem_id="start-status")
        with gr.Accordion("Memory for each worker", open=True, elem_id="memory"):
            self.memory = gr.HTML(note(NO_MEMORY_YET), elem_id="memory-picture")
        # Not gr.Number, which turns an empty field into 0.
        with gr.Accordion("Advanced", open=False, elem_id="tune-advanced"):
            with gr.Row():
                self.strategy = gr.Dropdown(
                    list(STRATEGIES), value="ddp", label="Strategy: how workers share the model"
                )
                self.workers = gr.Textbox(label="Workers", placeholder="1", max_length=4, elem_id="workers")
                self.device = gr.Dropdown(["auto", "cpu", "cuda"], value="auto", label="Device")
            with gr.Row():
                self.learning_rate = gr.Textbox(
                    label="Learning rate (optional)", placeholder="from the preset", elem_id="learning-rate"
                )
                self.steps = gr.Textbox(
                    label="Steps (optional)", placeholder="from the preset", max_length=7, elem_id="num-steps"
                )
                self.micro_batch_tokens = gr.Textbox(
                    label="Tokens in a micro-batch (optional)", placeholder="from the preset", max_length=6
                )
            self.saves_memory = gr.Checkbox(label="Activation checkpointing: a third slower, much less memory")
            self.accept_synthetic = gr.Checkbox(
                label="Learn also from recordings that Encore made", elem_id="accept-synthetic-clips"
            )
        self.seen = gr.State("")
        self.plan_timer = gr.Timer(POLL_SECONDS, active=False)
        self.start_timer = gr.Timer(POLL_SECONDS, active=False)
        self.watch = RunWatch(context, tab)
        self._connect(tab)

    @property
    def wish(self) -> Inputs:
        """The component of each field of a `Wish`."""
        return {
            "dataset": self.dataset,
            "preset": self.preset,
            "strategy": self.strategy,
            "workers": self.workers,
            "device": self.device,
            "learning_rate": self.learning_rate,
            "steps": self.steps,
            "micro_batch_tokens": self.micro_batch_tokens,
            "saves_memory": self.saves_memory,
            "accept_synthetic": self.accept_synthetic,
        }

    def _connect(self, tab: gr.Tab) -> None:
        planned = [self.seen, self.plan, self.memory, self.start, self.plan_timer]
        for component in self.wish.values():
            api = "plan" if component is self.dataset else None
            trigger = component.change  # type: ignore[union-attr] # each of these fields has the event
            bind(trigger, self._plan, self.wish, planned, api=api, quick=True, trigger_mode="always_last")
        bind(self.plan_timer.tick, self._follow_plan, {"seen": self.seen}, planned, api="follow_plan", quick=True)
        given: Inputs = {
            "given_statement": self.voice.statement,
            "given_who": self.voice.who,
            "proof": self.voice.proof,
            "given_signed": self.voice.signed,
            "references": self.voice.references,
            "source": self.voice.source,
        }
        chosen: Inputs = {"dataset": self.dataset}
        asking = [self.consent, self.asking, self.statement, self.signed]
        opened = bind(
            tab.select,
            self._open,
            {**given, **chosen, "name": self.name, "given_name": self.voice.name},
            [self.dataset, self.name, self.status, *asking],
            api="open_finetune",
        )
        bind(self.dataset.input, self._ask_for_consent, {**given, **chosen}, asking, api="ask_for_consent", quick=True)
        bind(
            self.statement.input,
            lambda dataset: {self.signed: dataset},
            chosen,
            self.signed,
            api="state_tune_consent",
            quick=True,
        )
        # Another model may have been loaded since, or the dataset been edited.
        bind(opened.success, self._plan, self.wish, planned, quick=True)
        started = [self.status, self.start, self.cancel, self.start_timer]
        bind(
            self.start.click,
            self._start,
            {
                **given,
                "name": self.name,
                "statement": self.statement,
                "who": self.who,
                "signed": self.signed,
                "transcript": self.voice.transcript,
                **self.wish,
            },
            started,
            api="start_run",
            quick=True,
        )
        bind(
            self.start_timer.tick,
            self._follow_start,
            None,
            [*started, self.watch.chosen, *self.watch.shown],
            api="follow_start",
            quick=True,
        )
        bind(self.cancel.click, self._cancel, api="cancel_start", quick=True)

    def _open(
        self,
        dataset: str | None,
        name: str,
        given_name: str,
        references: list[Reference],
        source: Source | None,
        **given: Any,
    ) -> Update:
        """The datasets there are, and what the Speak tab knows already."""
        datasets = self.context.studio.datasets
        choices = [(one, one) for one in datasets.list() if datasets.is_built(one)]
        if (material := gather_material(references, source)).is_given:
            choices.append((made_first(material.sample, len(material.recordings)), MADE_FIRST))
        values = [value for _, value in choices]
        chosen = dataset if dataset in values else next(iter(values), None)
        proposed = proposed_name(voice_name(source), []) if chosen == MADE_FIRST else chosen
        update: Update = {
            self.dataset: gr.update(choices=choices, value=chosen),
            self.status: NOTHING if choices else says("", NOTHING_TO_LEARN_FROM),
        }
        # What is filled in already, or is being filled in right now, stays.
        if (value := given_name or proposed) and not name:
            update[self.name] = value
        return update | self._ask_for_consent(chosen, references, source, **given)

    def _ask_for_consent(
        self,
        dataset: str | None,
        references: list[Reference],
        source: Source | None,
        given_statement: str | None,
        given_who: str,
        proof: SpokenProof | None,
        given_signed: str,
    ) -> Update:
        """Show who agreed, and ask only where a recording has no consent; what was stated for another set is gone."""
        stated = Stated(statement=given_statement, who=given_who, proof=proof, source=source, signed=given_signed)
        consents = self.planner.consents(dataset or "", gather_material(references, source), stated)
        return {
            self.consent: consents_html(consents),
            self.asking: gr.update(visible=None in consents),
            self.statement: gr.update(value=None),
            self.signed: "",
        }

    def _plan(self, request: gr.Request, **wish: Any) -> Update:
        """Start to plan what is filled in, and show what is known already."""
        self.planner.plan(session_of(request), Wish.read(**wish))
        return self._planned(session_of(request))

    def _follow_plan(self, seen: str, request: gr.Request) -> Update:
        return self._planned(session_of(request), seen)

    def _planned(self, session: str, seen: str = "") -> Update:
        """The plan, or why there is none; what the page has `seen` already is left as it is."""
        state = self.planner.plans.state(session)
        since_end = state.seconds_since_end if state is not None else math.inf
        timer = gr.Timer(active=since_end is None or since_end < SETTLED_SECONDS)
        shown = plan_html(state)
        if shown == seen:
            return {self.plan_timer: timer}
        plan = state.result if state is not None else None
        can_start = since_end is not None and not (plan is not None and plan.problems)
        data = plan.data if plan is not None else None
        words = f"Fine-tune ({data.preset})" if data is not None else "Fine-tune"
        update: dict[Block, Any] = {
            self.seen: shown,
            self.plan: shown,
            self.start: gr.update(value=words, interactive=can_start),
            self.plan_timer: timer,
        }
        return {**update, self.memory: memory_html(plan)} if plan is not None and data is not None else update

    def _start(
        self,
        request: gr.Request,
        name: str,
        statement: str | None,
        who: str,
        signed: str,
        references: list[Reference],
        source: Source | None,
        transcript: str,
        given_statement: str | None,
        given_who: str,
        proof: SpokenProof | None,
        given_signed: str,
        **wish: Any,
    ) -> Update:
        """Begin to start a run with what is filled in."""
        session, material = session_of(request), gather_material(references, source, transcript)
        stated = Stated(statement=given_statement, who=given_who, proof=proof, source=source, signed=given_signed)
        wished, consent = Wish.read(**wish), None
        if None in self.planner.consents(wished.dataset, material, stated):
            if statement and signed not in ("", wished.dataset):
                raise ConsentMissing(OTHER_RECORDING)
            consent = Consent.from_form(statement, who)
        self.planner.start(session, wished, name, consent, material, stated)
        return {**self._starting(session), self.start_timer: gr.Timer(active=True)}

    def _follow_start(self, request: gr.Request) -> Update:
        """Follow the start of a run until there is a run to watch."""
        session = session_of(request)
        update, state = self._starting(session), self.planner.starts.state(session)
        if state is None or state.result is None:
            return {**update, self.start_timer: gr.Timer(active=state is not None and state.is_running)}
        self.planner.starts.forget(session)
        ended: Update = {self.status: says("good", STARTED), self.start_timer: gr.Timer(active=False)}
        return {**update, **ended, **self.watch.refresh(state.result)}

    def _starting(self, session: str) -> Update:
        """What the start is doing, its button, and that which cancels."""
        state = self.planner.starts.state(session)
        is_running = state is not None and state.is_running
        can_cancel = state is not None and is_running and state.what == MAKING_CLIPS
        return {
            self.status: task_line(state),
            self.start: gr.update(interactive=not is_running),
            self.cancel: gr.update(visible=can_cancel),
        }

    def _cancel(self, request: gr.Request) -> None:
        """Stop the clips that are being made; those that are ready are kept for the next time."""
        self.planner.starts.cancel(session_of(request))
