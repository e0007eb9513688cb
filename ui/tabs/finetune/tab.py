"""The fine-tune tab: a run planned and started; watching it is `run_watch`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gradio as gr

from backend.runs.planning.plan import RunPlan
from ui.context import PageContext
from ui.errors import shows_errors
from ui.html import base as render
from ui.source import Reference, Source
from ui.tabs.dataset import render as render_dataset
from ui.tabs.dataset.prepare import Material, proposed_name
from ui.tabs.finetune import render as render_finetune
from ui.tabs.finetune.log import connect_reading
from ui.tabs.finetune.plan import MADE_FIRST, MAKING_CLIPS, Planner, Wish, read_consent
from ui.tabs.finetune.plan_part import POLL_SECONDS, PlanPart, build_plan_part
from ui.tabs.finetune.watch import RunWatch, WatchPart, build_watch, connect_watch
from ui.tabs.voice.source_part import VoicePart

SETTLED_SECONDS = 10.0
"""Answers to a look and to a change may overtake each other; whoever stopped looking at the first end might miss the
plan for what was typed since."""

ABOUT = (
    '<p class="note">A fine-tune changes the model itself to speak like one person. It goes on when this page is '
    "closed.</p>"
)


def build_finetune_tab(context: PageContext, tab: gr.Tab, voice: VoicePart) -> None:
    """Lay the tab out; `voice` may know already who agreed."""
    gr.HTML("<h2>Fine-tune</h2>", elem_classes=["step"])
    gr.HTML(ABOUT)
    part = build_plan_part()
    watch = build_watch()
    runs = RunWatch(context)
    connect_watch(runs, watch)
    connect_reading(context, watch.reading, watch.chosen)
    planner = Planner(context)
    _connect_planning(planner, part)
    _connect_opening(context, tab, planner, part, voice)
    _connect_starting(planner, part, watch, runs, voice)
    for event in (context.page.load, tab.select):
        event(
            shows_errors(runs.list),
            watch.chosen,
            [watch.chosen, *watch.shown],
            show_progress="hidden",
            api_name="list_runs" if event == tab.select else None,
            api_visibility="undocumented" if event == tab.select else "private",
        )


def _planning(planner: Planner) -> Callable[..., list[Any]]:
    """A handler that begins to plan what is filled in."""

    def plan(request: gr.Request, *fields: Any) -> list[Any]:
        """Begin, and show what is known already."""
        session = str(request.session_hash)
        planner.plan(session, Wish.read(*fields))
        return _planned(planner, session)

    return shows_errors(plan)


def _connect_planning(planner: Planner, part: PlanPart) -> None:
    plan = _planning(planner)

    def tick(request: gr.Request, seen: str) -> list[Any]:
        return _planned(planner, str(request.session_hash), seen)

    for component in part.wish:
        component.change(
            plan,
            part.wish,
            part.planned,
            queue=False,
            show_progress="hidden",
            trigger_mode="always_last",
            api_name="plan" if component is part.dataset else None,
            api_visibility="undocumented" if component is part.dataset else "private",
        )
    part.timer.tick(
        tick,
        part.seen,
        part.planned,
        queue=False,
        show_progress="hidden",
        api_name="follow_plan",
        api_visibility="undocumented",
    )


def _connect_opening(context: PageContext, tab: gr.Tab, planner: Planner, part: PlanPart, voice: VoicePart) -> None:
    def refresh(
        references: list[Reference],
        source: Source | None,
        dataset: str | None,
        name: str,
        statement: str | None,
        who: str,
        given_statement: str | None,
        given_who: str,
        given_name: str,
    ) -> list[Any]:
        """What there is to train on, and what was filled in on the Voice tab."""
        names = [one for one in context.studio.datasets.list() if context.studio.datasets.is_built(one)]
        choices = [(one, one) for one in names]
        if (given := Material.gather(references, source, "", [])).is_given:
            choices.append((render_finetune.made_first(given.sample, len(given.recordings)), MADE_FIRST))
        values = [value for _, value in choices]
        chosen = dataset if dataset in values else next(iter(values), None)
        proposed = proposed_name(source, []) if chosen == MADE_FIRST else chosen
        return [
            gr.update(choices=choices, value=chosen),
            # What is filled in already, or is being filled in right now, stays.
            gr.skip() if name else (given_name or proposed or gr.skip()),
            gr.skip() if statement else (given_statement or gr.skip()),
            gr.skip() if who else (given_who or gr.skip()),
            render.NOTHING if choices else render.says("", render_finetune.NOTHING_TO_LEARN_FROM),
        ]

    opened = tab.select(
        shows_errors(refresh),
        [
            *(voice.references, voice.source, part.dataset, part.voice, part.statement, part.who),
            *(voice.statement, voice.who, voice.name),
        ],
        [part.dataset, part.voice, part.statement, part.who, part.status],
        show_progress="hidden",
        api_name="open_finetune",
        api_visibility="undocumented",
    )
    # Another model may have been loaded since, or the dataset been edited.
    opened.success(
        _planning(planner), part.wish, part.planned, queue=False, show_progress="hidden", api_visibility="private"
    )


def _connect_starting(planner: Planner, part: PlanPart, watch: WatchPart, runs: RunWatch, voice: VoicePart) -> None:
    timer = gr.Timer(POLL_SECONDS, active=False)
    part.start.click(
        shows_errors(_start(planner)),
        [part.voice, part.statement, part.who, voice.source, voice.references, voice.transcript, *part.wish],
        [part.status, part.start, part.cancel, timer],
        queue=False,
        show_progress="hidden",
        api_name="start_run",
        api_visibility="undocumented",
    )
    timer.tick(
        shows_errors(_follow_start(planner, watch, runs)),
        None,
        [part.status, part.start, part.cancel, timer, watch.chosen, *watch.shown],
        queue=False,
        show_progress="hidden",
        api_name="follow_start",
        api_visibility="undocumented",
    )

    def cancel(request: gr.Request) -> None:
        """Stop making clips."""
        planner.cancel(str(request.session_hash))

    part.cancel.click(cancel, None, None, queue=False, api_name="cancel_start", api_visibility="undocumented")


def _start(planner: Planner) -> Callable[..., list[Any]]:
    def start(
        request: gr.Request,
        name: str,
        statement: str | None,
        who: str,
        source: Source | None,
        references: list[Reference],
        transcript: str,
        *fields: Any,
    ) -> list[Any]:
        """Begin to start a run with what is filled in."""
        session, given = str(request.session_hash), Material.gather(references, source, transcript, [])
        planner.start(session, Wish.read(*fields), name, read_consent(statement, who, source), given, source)
        return [*_starting(planner, session)[:3], gr.Timer(active=True)]

    return start


def _follow_start(planner: Planner, watch: WatchPart, runs: RunWatch) -> Callable[..., list[Any]]:
    def tick(request: gr.Request) -> list[Any]:
        """Follow the start of a run until there is a run to watch."""
        session = str(request.session_hash)
        line, button, stop, run_id = _starting(planner, session)
        if not isinstance(run_id, str):
            state = planner.background_tasks.state(f"start {session}")
            is_running = state is not None and state.is_running
            return [line, button, stop, gr.Timer(active=is_running), gr.skip(), *watch.unchanged]
        planner.background_tasks.forget(f"start {session}")
        said = render.says("good", render_finetune.STARTED)
        return [said, button, stop, gr.Timer(active=False), *runs.list(run_id)]

    return tick


def _starting(planner: Planner, session: str) -> tuple[str, Any, Any, object]:
    """What the start is doing, its button, that which cancels, and the id of the run once there is one."""
    state = planner.background_tasks.state(f"start {session}")
    is_running = state is not None and state.is_running
    can_cancel = state is not None and is_running and state.what == MAKING_CLIPS
    return (
        render_dataset.task_line(state),
        gr.update(interactive=not is_running),
        gr.update(visible=can_cancel),
        state.result if state else None,
    )


def _planned(planner: Planner, session: str, seen: str = "") -> list[Any]:
    """Values for `PlanPart.planned`; what the page has `seen` already is left as it is."""
    state = planner.background_tasks.state(f"plan {session}")
    since_end = state.seconds_since_end if state is not None else math.inf
    timer = gr.Timer(active=since_end is None or since_end < SETTLED_SECONDS)
    html = render_finetune.plan_html(state)
    if html == seen:
        return [*[gr.skip()] * 4, timer]
    result = state.result if state is not None else None
    memory: Any = gr.skip()
    words = "Fine-tune"
    if isinstance(result, RunPlan) and result.data is not None:
        memory = render_finetune.memory_html(result)
        words = f"Fine-tune ({result.data.preset})"
    can_start = since_end is not None and not (isinstance(result, RunPlan) and result.problems)
    return [html, html, memory, gr.update(value=words, interactive=can_start), timer]
