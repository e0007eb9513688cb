"""The Tune tab: a run planned and started; watching it is `watch`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component
from gradio.events import Dependency
from markupsafe import Markup

from backend.dataset.sources.material import proposed_name
from backend.voices.consent import Consent, SpokenProof
from backend.voices.errors import ConsentMissing
from training.job import STRATEGIES
from training.model.device_names import DEVICES
from ui.bar.bar import fixed_html
from ui.consent import Stated, of_another_recording, read_consent
from ui.context import PageContext
from ui.events import FOCUS_REFUSAL, Inputs, Update, answered_in, bind, session_of
from ui.fields import build_consent
from ui.html.consents import consents_html
from ui.html.messages import NOTHING, note, reason, says, task_line
from ui.html.templates import html
from ui.material import gather_material, voice_name
from ui.source import Reference, Source, VoiceFields
from ui.tabs.finetune.plan import FROM_DATA, MADE_FIRST, MAKING_CLIPS, Planner, Wish
from ui.tabs.finetune.render import made_first, memory_html, plan_html, preset_choices
from ui.tabs.finetune.watch import NEW, RunWatch
from ui.takes import OwnTakes
from ui.words.words import say, word

POLL_SECONDS = 0.7
SETTLED_SECONDS = 10.0
"""Answers to a poll and to a change may overtake each other; a page that stopped polling at the first end might miss
the plan for what was typed since."""


class FinetuneTab:
    """Plans what is filled in, starts it, and shows the runs."""

    def __init__(self, context: PageContext, tab: gr.Tab, voice: VoiceFields, takes: OwnTakes) -> None:
        """Lay it out; `takes` know the name that the browser has given itself."""
        self.context, self.voice, self.planner, self._takes = context, voice, Planner(context), takes
        self._build_top()
        with gr.Column(elem_id="tune-form") as self.form:
            with gr.Row():
                self.dataset = gr.Dropdown(
                    [], value=None, label=word("tune.dataset"), min_width=200, elem_id="tune-dataset"
                )
                self.name = gr.Textbox(label=word("tune.name"), max_length=64, min_width=200, elem_id="tune-voice")
                self.more = gr.Dropdown(
                    [],
                    value=[],
                    multiselect=True,
                    label=word("tune.more_speakers"),
                    min_width=200,
                    visible=False,
                    elem_id="tune-more",
                )
            self.preset = gr.Radio(
                preset_choices({}),
                value=None,
                label=word("tune.preset"),
                elem_id="preset",
                elem_classes=["preset-cards"],
            )
            self.method = gr.Radio(
                [(word("tune.method_full"), "full"), (word("tune.method_light"), "lora")],
                value="full",
                label=word("tune.method"),
                elem_id="tune-method",
            )
            self.picked = gr.State(False)
            self.consent = gr.HTML(NOTHING, elem_id="tune-consents")
            with gr.Column(visible=False, elem_id="tune-asks-consent") as self.asking:
                self.statement, self.who = build_consent(context, "tune-")
            self.signed = gr.State("")
            self.plan = gr.HTML(NOTHING, elem_id="plan")
            with gr.Row(elem_id="start-keys"):
                self.start = gr.Button(word("tune.start"), variant="primary", min_width=180, elem_id="start-run")
                self.cancel = gr.Button(word("tune.cancel"), visible=False, min_width=100, elem_id="cancel-start")
            self.status = gr.HTML(NOTHING, elem_id="start-status", js_on_load=FOCUS_REFUSAL)
            with gr.Accordion(word("tune.engineers"), open=False, elem_id="tune-advanced"):
                self._build_options()
        self.seen = gr.State("")
        # Whether the name was typed: only then it stays whatever is chosen.
        self.typed = gr.State(False)
        self.plan_timer = gr.Timer(POLL_SECONDS, active=False)
        self.start_timer = gr.Timer(POLL_SECONDS, active=False)
        self.watch = RunWatch(context, tab, self.run, self.form)
        self._connect(tab)

    def _build_top(self) -> None:
        with gr.Row(elem_id="tune-top"):
            fixed_html(html('<h2 data-word="tune.title">Tune</h2>'), "tune-title")
            self.run = gr.Dropdown(
                [("…", NEW)],
                value=None,
                label=word("tune.run"),
                show_label=False,
                visible=False,
                min_width=200,
                elem_id="run",
            )

    def _build_options(self) -> None:
        """What the recipe decides unless it is filled in, and the memory that each strategy takes."""
        with gr.Row():
            self.strategy = gr.Dropdown(list(STRATEGIES), value="ddp", label=word("tune.strategy"), min_width=200)
            # Not gr.Number, which turns an empty field into 0.
            self.workers = gr.Textbox(
                label=word("tune.workers"), placeholder="1", max_length=4, min_width=100, elem_id="workers"
            )
            self.device = gr.Dropdown(list(DEVICES), value="auto", label=word("tune.device"), min_width=120)
        with gr.Row():
            self.learning_rate = gr.Textbox(
                label=word("tune.learning_rate"), placeholder=word("tune.from_preset"), elem_id="learning-rate"
            )
            self.steps = gr.Textbox(
                label=word("tune.steps"), placeholder=word("tune.from_preset"), max_length=7, elem_id="num-steps"
            )
            self.micro_batch_tokens = gr.Textbox(
                label=word("tune.micro_batch"), placeholder=word("tune.from_preset"), max_length=6
            )
        self.saves_memory = gr.Checkbox(label=word("tune.saves_memory"))
        self.accept_synthetic = gr.Checkbox(label=word("tune.accept_synthetic"), elem_id="accept-synthetic-clips")
        self.memory = gr.HTML(NOTHING, elem_id="memory-picture")

    @property
    def wish(self) -> Inputs:
        """The component of each field of a `Wish`."""
        return {
            "dataset": self.dataset,
            "more": self.more,
            "preset": self.preset,
            "strategy": self.strategy,
            "workers": self.workers,
            "device": self.device,
            "learning_rate": self.learning_rate,
            "steps": self.steps,
            "micro_batch_tokens": self.micro_batch_tokens,
            "saves_memory": self.saves_memory,
            "accept_synthetic": self.accept_synthetic,
            "method": self.method,
        }

    def _connect(self, tab: gr.Tab) -> None:
        planned: list[Block] = [self.seen, self.plan, self.memory, self.start, self.preset, self.plan_timer]
        wished = {**self.wish, "picked": self.picked}
        given: Inputs = {
            "given_statement": self.voice.statement,
            "given_who": self.voice.who,
            "proof": self.voice.proof,
            "given_signed": self.voice.signed,
            "references": self.voice.references,
            "source": self.voice.source,
        }
        self._connect_plan(wished, planned)
        opened = self._connect_consent(tab, given)
        # Another model may have been loaded since, or the dataset been edited.
        bind(opened.success, self._plan, wished, planned, quick=True)
        started = [self.status, self.start, self.cancel, self.start_timer]
        noted = [self.consent, self.statement, self.who, self.signed]
        bind(
            self.start.click,
            answered_in(self.status, self._start),
            {
                **given,
                "name": self.name,
                "statement": self.statement,
                "who": self.who,
                "signed": self.signed,
                "transcript": self.voice.transcript,
                "browser": self._takes.browser,
                **wished,
            },
            [*started, *noted],
            api="start_run",
        )
        self._connect_start(started)

    def _connect_start(self, started: Sequence[Component]) -> None:
        """A start that is under way is followed until there is a run, also by a page that was loaded anew."""
        whose = {"browser": self._takes.browser}
        followed = [*started, self.watch.chosen, *self.watch.shown]
        bind(self.start_timer.tick, self._follow_start, whose, followed, api="follow_start", quick=True)
        bind(self._takes.came_back.then, self._come_back, whose, started, api="come_back_to_start", quick=True)
        cancelled = [self.status, self.start, self.cancel]
        bind(self.cancel.click, self._cancel, whose, cancelled, api="cancel_start", quick=True)

    def _connect_plan(self, wished: Inputs, planned: list[Block]) -> None:
        """Whatever is chosen is planned at once."""
        for component in self.wish.values():
            if component is self.preset:
                continue
            api = "plan" if component is self.dataset else None
            trigger = component.change  # type: ignore[union-attr] # each of these fields has the event
            bind(trigger, self._plan, wished, planned, api=api, quick=True, trigger_mode="always_last")
        # Not every change: the recipe that fits is chosen by the plan.
        bind(self.preset.input, self._pick, wished, [*planned, self.picked], quick=True, trigger_mode="always_last")
        bind(self.plan_timer.tick, self._follow_plan, {"seen": self.seen}, planned, api="follow_plan", quick=True)

    def _connect_consent(self, tab: gr.Tab, given: Inputs) -> Dependency:
        """Who has to agree depends on the dataset; returns what happens when the tab is opened."""
        chosen: Inputs = {"dataset": self.dataset, "more": self.more}
        asking = [self.more, self.consent, self.asking, self.statement, self.signed]
        opened = bind(
            tab.select,
            self._open,
            {
                **given,
                **chosen,
                "name": self.name,
                "typed": self.typed,
                "given_name": self.voice.name,
                "browser": self._takes.browser,
            },
            [self.dataset, self.name, self.status, *asking],
            api="open_finetune",
        )
        naming = {"dataset": self.dataset, "source": self.voice.source, "typed": self.typed}
        naming["given_name"] = self.voice.name
        bind(self.dataset.input, self._follow_dataset, naming, self.name, api="name_tuned", quick=True)
        bind(self.name.input, self._note_typing, {"name": self.name}, self.typed, api="type_tuned_name", quick=True)
        for field, api in ((self.dataset, "ask_for_consent"), (self.more, None)):
            bind(field.input, self._forget_pick, None, [self.picked, self.preset], quick=True)
            bind(field.input, self._ask_for_consent, {**given, **chosen}, asking, api=api, quick=True)
        bind(
            self.statement.input,
            lambda dataset, more: {self.signed: _key(dataset, more)},
            chosen,
            self.signed,
            api="state_tune_consent",
            quick=True,
        )
        return opened

    def _open(
        self,
        request: gr.Request,
        browser: str,
        dataset: str | None,
        more: list[str] | None,
        name: str,
        typed: bool,
        given_name: str,
        references: list[Reference],
        source: Source | None,
        **given: Any,
    ) -> Update:
        """The datasets there are, and what the Speak tab knows already."""
        datasets = self.context.studio.datasets
        choices = [(one, one) for one in datasets.list() if datasets.is_built(one)]
        if (material := gather_material(references, source)).is_given:
            voice = source.name if source is not None and source.kind == "voice" else ""
            choices.append((made_first(material.sample, len(material.recordings), voice), MADE_FIRST))
        values = [value for _, value in choices]
        chosen = dataset if dataset in values else next(iter(values), None)
        update: Update = {
            self.dataset: gr.update(choices=choices, value=chosen),
        }
        visitor = _visitor(request, browser)
        if self.planner.starts.is_news(visitor):
            update[self.status] = self._starting(visitor)[self.status]
        elif not choices:
            update[self.status] = says("", say("tune.nothing"))
        elif browser:
            # While the page does not know its browser yet, there may be news all the same.
            update[self.status] = NOTHING
        if not (name and typed):
            update[self.name] = self._name_for(chosen, source, given_name)
        return update | self._ask_for_consent(chosen, more, references, source, **given)

    def _name_for(self, dataset: str | None, source: Source | None, given_name: str) -> str:
        """A free name for the voice that is learnt: its dataset's, or that of what a dataset would be made of."""
        if dataset != MADE_FIRST:
            return self.planner.free_name(dataset or "")
        is_recording = source is not None and source.kind == "recording"
        if is_recording and given_name and self.planner.free_name(given_name) == given_name:
            return given_name
        return self.planner.free_name(proposed_name(voice_name(source), []))

    def _follow_dataset(self, dataset: str | None, source: Source | None, typed: bool, given_name: str) -> Update:
        """Another dataset is another voice, unless its name was typed."""
        return {} if typed else {self.name: self._name_for(dataset, source, given_name)}

    def _note_typing(self, name: str) -> Update:
        """What was typed stays; an emptied field is filled in again."""
        return {self.typed: bool(name.strip())}

    def _ask_for_consent(
        self,
        dataset: str | None,
        more: list[str] | None,
        references: list[Reference],
        source: Source | None,
        given_statement: str | None,
        given_who: str,
        proof: SpokenProof | None,
        given_signed: str,
    ) -> Update:
        """Show who agreed, and ask only where a recording has no consent; what was stated for another set is gone."""
        others = self._others(dataset)
        chosen = [one for one in more or [] if one in others]
        datasets = [dataset or "", *chosen] if dataset else []
        stated = Stated(statement=given_statement, who=given_who, proof=proof, source=source, signed=given_signed)
        consents = self.planner.consents(datasets, gather_material(references, source), stated)
        return {
            self.more: gr.update(choices=[(one, one) for one in others], value=chosen, visible=bool(others)),
            self.consent: consents_html(consents) + self._still_to_agree(datasets),
            self.asking: gr.update(visible=None in consents),
            self.statement: gr.update(value=None),
            self.signed: "",
        }

    def _others(self, dataset: str | None) -> list[str]:
        """The datasets whose speakers could learn in the same run; none beside one that is yet to be made."""
        datasets = self.context.studio.datasets
        if not dataset or dataset == MADE_FIRST:
            return []
        return [one for one in datasets.list() if datasets.is_built(one) and one != dataset]

    def _still_to_agree(self, datasets: list[str]) -> Markup:
        """Who is asked first, where there are several speakers; nothing for one."""
        without = self.planner.without_consent(datasets) if len(datasets) > 1 else []
        return note(say("tune.consent_for", name=without[0], names=", ".join(without))) if without else Markup()

    def _plan(self, request: gr.Request, picked: bool, **wish: Any) -> Update:
        """Start to plan what is filled in, and show what is known already."""
        self.planner.plan(session_of(request), _read(picked, wish))
        return self._planned(session_of(request))

    def _pick(self, request: gr.Request, picked: bool, **wish: Any) -> Update:
        """Plan with a recipe that was picked, whatever fits."""
        return {self.picked: True, **self._plan(request, True, **wish)}

    def _forget_pick(self) -> Update:
        """Another dataset: what fits is chosen anew."""
        return {self.picked: False, self.preset: None}

    @property
    def choosing(self) -> list[Block]:
        """What `choose` changes."""
        form = [self.dataset, self.more, self.name, self.typed, self.picked, self.preset]
        return [*form, self.run, *self.watch.shown]

    def follow_on(self, button: gr.Button, dataset: gr.Dropdown) -> None:
        """Let a button of another tab lead here, with its dataset."""
        chosen = bind(button.click, self.choose, {"name": dataset}, self.choosing, api="tune_dataset")
        chosen.success(None, None, None, js="() => encore.nav.go('tune')", queue=False, api_visibility="private")

    def choose(self, name: str | None) -> Update:
        """Get ready to learn from a dataset that was just looked at."""
        datasets = self.context.studio.datasets
        choices = [(one, one) for one in datasets.list() if datasets.is_built(one)]
        others = self._others(name)
        chosen: Update = {
            self.dataset: gr.update(choices=choices, value=name),
            self.more: gr.update(choices=[(one, one) for one in others], value=[], visible=bool(others)),
            self.name: "",
            self.typed: False,
            self.run: NEW,
        }
        return {**chosen, **self._forget_pick(), **self.watch.show(NEW)}

    def _follow_plan(self, seen: str, request: gr.Request) -> Update:
        # Changes may be applied on Data meanwhile: nobody should have to choose something else and back to start.
        is_waiting = self.planner.catch_up(session_of(request))
        return self._planned(session_of(request), seen, is_waiting=is_waiting)

    def _planned(self, session: str, seen: str = "", *, is_waiting: bool = False) -> Update:
        """The plan, or why there is none; what the page has `seen` already is left as it is. It is looked at again
        where something is waited for.
        """
        state = self.planner.plans.state(session)
        since_end = state.seconds_since_end if state is not None else math.inf
        is_quoting = (quotes := self.planner.quotes.state(session)) is not None and quotes.is_running
        is_open = is_waiting or is_quoting or since_end is None or since_end < SETTLED_SECONDS
        timer = gr.Timer(active=is_open)
        quoted = self.planner.quoted(session)
        shown = plan_html(state)
        now = f"{shown} {sorted(quoted)}"
        if now == seen:
            return {self.plan_timer: timer}
        plan = state.result if state is not None else None
        can_start = since_end is not None and not (plan is not None and plan.problems)
        data = plan.data if plan is not None else None
        preset = gr.update(choices=preset_choices(quoted))
        update: Update = {
            self.seen: now,
            self.plan: shown,
            self.start: gr.update(interactive=can_start),
            self.preset: {**preset, "value": data.preset} if data is not None else preset,
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
        browser: str,
        picked: bool,
        **wish: Any,
    ) -> Update:
        """Begin to start a run with what is filled in."""
        visitor, material = _visitor(request, browser), gather_material(references, source, transcript)
        stated = Stated(statement=given_statement, who=given_who, proof=proof, source=source, signed=given_signed)
        wished, consent = _read(picked, wish), None
        if None in self.planner.consents(wished.datasets, material, stated):
            if statement and signed not in ("", _key(wished.dataset, wished.more)):
                raise of_another_recording()
            if not statement:
                raise ConsentMissing(say("tune.consent_missing"))
            consent = read_consent(statement, who)
            without = self.planner.without_consent(wished.datasets)
            if len(without) > 1:
                return self._next_consent(without, consent, wished)
        self.planner.start(visitor, wished, name, consent, material, stated)
        return {**self._starting(visitor), self.start_timer: gr.Timer(active=True)}

    def _next_consent(self, without: list[str], consent: Consent, wished: Wish) -> Update:
        """Each speaker has a consent of their own: store that of the first who lacks one, and ask for the next."""
        first, second, *_ = without
        self.context.studio.datasets.give_consent(first, consent)
        datasets = list(wished.datasets)
        consents = [one for name in datasets for one in self.context.studio.datasets.consents(name).values()]
        return {
            self.consent: consents_html(consents) + self._still_to_agree(datasets),
            self.statement: gr.update(value=None),
            self.who: "",
            self.signed: "",
            self.status: says("mixed", say("tune.consent_noted", name=first, next=second)),
        }

    def _follow_start(self, request: gr.Request, browser: str) -> Update:
        """Follow the start of a run until there is a run to watch."""
        visitor, starts = _visitor(request, browser), self.planner.starts
        state = starts.state(visitor)
        if state is not None and state.is_running:
            return {**self._starting(visitor), self.start_timer: gr.Timer(active=True)}
        # Each page that follows it is led to the run, and only once: it may have gone elsewhere since.
        is_first = starts.tell(visitor, session_of(request))
        ended: Update = {**self._starting(visitor), self.start_timer: gr.Timer(active=False)}
        if state is None or state.result is None or not is_first:
            return ended
        return {**ended, **self.watch.refresh(state.result)}

    def _come_back(self, request: gr.Request, browser: str) -> Update:
        """Go on following what this browser has started, if it is still to come to a run or has ended since."""
        visitor = _visitor(request, browser)
        if not self.planner.starts.is_news(visitor):
            return {}
        return {**self._starting(visitor), self.start_timer: gr.Timer(active=True)}

    def _starting(self, visitor: str) -> Update:
        """What the start is doing, its button, and that which cancels."""
        starts = self.planner.starts
        state, is_cancelling = starts.state(visitor), starts.is_cancelling(visitor)
        is_running = state is not None and state.is_running
        can_cancel = state is not None and is_running and state.what == say(MAKING_CLIPS)
        said = task_line(state)
        if is_cancelling:
            said = says("", say("tune.stopping"))
        elif state is not None and starts.was_cancelled(visitor):
            said = says("mixed", reason(state.problem))
        return {
            self.status: said,
            self.start: gr.update(interactive=not is_running),
            self.cancel: gr.update(visible=can_cancel, interactive=not is_cancelling),
        }

    def _cancel(self, request: gr.Request, browser: str) -> Update:
        """Stop the clips that are being made, and say so at once: one or two are brought to an end first."""
        self.planner.starts.cancel(_visitor(request, browser))
        return self._starting(_visitor(request, browser))


def _visitor(request: gr.Request, browser: str) -> str:
    """Whose start it is: the browser's, whose page may be loaded anew meanwhile; programs are a session each."""
    return browser or session_of(request)


def _read(picked: bool, wish: dict[str, Any]) -> Wish:
    """What is filled in; a recipe counts only once a person has picked one."""
    return Wish.read(**(wish if picked else {**wish, "preset": FROM_DATA}))


def _key(dataset: str | None, more: Sequence[str] | None) -> str:
    """What a statement was made for."""
    return ", ".join(filter(None, (dataset, *(more or ()))))
