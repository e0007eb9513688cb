"""The compare tab: the same text and seed by two or three voices, blind if the listener likes, and a vote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from backend.comparisons.comparison import Verdict
from backend.comparisons.making import MAX_TEXT_LENGTH
from backend.errors import EncoreError
from backend.evaluation.plan import STANDARD_SENTENCES
from ui.context import PageContext
from ui.errors import shows_errors, stream_shows_errors
from ui.html import base as render
from ui.live.follow import follow
from ui.tabs.compare import render as render_compare
from ui.tabs.compare.compare import (
    Shown,
    choose_sides,
    delete_paths,
    hear,
    proposed_name,
    read_order,
    speak_order,
    vote_html,
)
from ui.tabs.compare.render import VERDICTS
from ui.tabs.dataset import render as render_dataset
from ui.tabs.voice import render as render_source
from ui.tabs.voice.speak import NotReady

STOP_BUTTON_ID = "stop-compare"
NUM_SIDES = 3
NUM_SENTENCES = 5
VOTES: tuple[Verdict, ...] = ("A", "B", "C", "same", "bad")

ABOUT = (
    '<p class="note">The same text and the same seed by two or three voices, brought to one loudness. Blind, the '
    "letters are given out by chance, and you learn who was who after your vote.</p>"
)


@dataclass(frozen=True, kw_only=True)
class ComparePart:
    """Its components."""

    sides: tuple[gr.Dropdown, ...]
    given: gr.Dropdown
    text: gr.Textbox
    language: gr.Dropdown
    seed: gr.Textbox
    blind: gr.Checkbox
    compare: gr.Button
    stop: gr.Button
    status: gr.HTML
    takes: gr.HTML
    comparison_id: gr.State
    paths: gr.State
    votes: tuple[gr.Button, ...]
    voting: gr.Row
    result: gr.HTML
    keeping: gr.Row
    name: gr.Textbox
    keep: gr.Button
    kept: gr.HTML


def build_compare_tab(context: PageContext, tab: gr.Tab) -> None:
    """Lay the tab out and connect its events."""
    gr.HTML("<h2>Compare</h2>", elem_classes=["step"])
    gr.HTML(ABOUT)
    part = _build()
    _connect_choices(context, part, tab)
    _connect_comparing(context, part)
    _connect_voting(context, part)


def _build() -> ComparePart:
    labels = ("First voice", "Second voice", "Third voice (optional)")
    with gr.Row():
        sides = tuple(
            # Two in a row: what tells two ways of one voice apart stands at the end of a label.
            gr.Dropdown([], value=None, label=label, min_width=420, elem_id=f"side-{number}")
            for number, label in enumerate(labels, 1)
        )
    sentences = _given_sentences()
    given = gr.Dropdown(sentences, value=None, label="A given sentence (optional)", elem_id="given-sentence")
    text = gr.Textbox(
        label="Text for all of them",
        value=sentences[0] if sentences else "",
        lines=2,
        max_length=MAX_TEXT_LENGTH,
        elem_id="compare-text",
    )
    with gr.Row():
        language = gr.Dropdown([("Automatic", "auto")], value="auto", label="Language", min_width=160)
        seed = gr.Textbox(label="Seed (optional)", placeholder="random", max_length=19, min_width=160)
    blind = gr.Checkbox(value=True, label="Blind: do not tell me who is who before I have voted", elem_id="blind")
    with gr.Row():
        compare = gr.Button("Compare", variant="primary", elem_id="compare")
        stop = gr.Button("Stop", elem_id=STOP_BUTTON_ID)
    status = gr.HTML(render.NOTHING, elem_id="compare-status")
    takes = gr.HTML(render.NOTHING, elem_id="compare-takes")
    with gr.Row(visible=False, elem_id="voting") as voting:
        votes = tuple(gr.Button(VERDICTS[verdict], min_width=120, elem_id=f"vote-{verdict}") for verdict in VOTES)
    result = gr.HTML(render.NOTHING, elem_id="vote-result")
    with gr.Row(visible=False, elem_classes=["choose"]) as keeping:
        name = gr.Textbox(label="Name of the voice to keep", max_length=64, scale=3, min_width=180, elem_id="keep-name")
        keep = gr.Button("Keep this voice", variant="primary", scale=1, min_width=140, elem_id="keep")
    return ComparePart(
        sides=sides,
        given=given,
        text=text,
        language=language,
        seed=seed,
        blind=blind,
        compare=compare,
        stop=stop,
        status=status,
        takes=takes,
        comparison_id=gr.State(""),
        paths=gr.State({}, delete_callback=delete_paths),
        votes=votes,
        voting=voting,
        result=result,
        keeping=keeping,
        name=name,
        keep=keep,
        kept=gr.HTML(render.NOTHING, elem_id="kept"),
    )


def _connect_choices(context: PageContext, part: ComparePart, tab: gr.Tab) -> None:
    is_chosen = gr.State(False)

    def refresh(first: str | None, second: str | None, third: str | None, by_person: bool) -> list[Any]:
        """Who can be compared now."""
        sides = context.studio.comparing.list_sides()
        # Until somebody chooses, the newest voice is proposed: mostly the one that has just been made.
        chosen = (first, second, third) if by_person else (None, None, third)
        values = choose_sides(sides, chosen)
        choices = [(side.label, side.key) for side in sides]
        loaded = context.studio.loaded
        names = loaded.model.config.languages if loaded is not None else ()
        languages = gr.update(choices=[("Automatic", "auto"), *((name.title(), name) for name in names)])
        optional = [("Nobody", ""), *choices]
        return [
            *(gr.update(choices=choices, value=value) for value in values[:2]),
            gr.update(choices=optional, value=values[2] or ""),
            languages,
        ]

    for event in (context.page.load, tab.select):
        event(
            shows_errors(refresh),
            [*part.sides, is_chosen],
            [*part.sides, part.language],
            queue=False,
            show_progress="hidden",
            api_name="list_sides" if event == tab.select else None,
            api_visibility="undocumented" if event == tab.select else "private",
        )
    for side in part.sides[:2]:
        side.input(lambda: True, None, is_chosen, queue=False, show_progress="hidden", api_visibility="private")
    part.given.input(lambda sentence: sentence, part.given, part.text, queue=False, api_visibility="private")


def _connect_comparing(context: PageContext, part: ComparePart) -> None:
    def begin(request: gr.Request) -> list[Any]:
        """Take away the comparison before."""
        context.flags.begin(_flag(request))
        nothing = [render.NOTHING] * 3
        return [render.says("", "Waiting for its turn …"), *nothing, gr.update(visible=False), gr.update(visible=False)]

    def compare(
        first: str | None,
        second: str | None,
        third: str | None,
        text: str,
        language: str | None,
        seed: str,
        blind: bool,
        before: Shown,
        request: gr.Request,
    ) -> Iterator[list[Any]]:
        """Let all of them speak, and show each as it is ready."""
        chosen = [key for key in (first, second, third) if key]
        flag = context.flags.current(_flag(request))
        try:
            order = read_order(context, chosen, text, language, seed, blind)
            yield from speak_order(context, order, flag.is_set, before, str(request.session_hash))
        finally:
            context.flags.end(_flag(request), flag)

    def stop(request: gr.Request) -> None:
        context.flags.stop(_flag(request))

    begun = part.compare.click(
        begin,
        None,
        [part.status, part.takes, part.result, part.kept, part.voting, part.keeping],
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    run = begun.then(
        stream_shows_errors(compare),
        [*part.sides, part.text, part.language, part.seed, part.blind, part.paths],
        [part.status, part.takes, part.voting, part.votes[2], part.comparison_id, part.paths],
        api_name="compare",
        api_visibility="undocumented",
        concurrency_id="model",
        concurrency_limit=1,
        show_progress="hidden",
    )
    run.failure(lambda: render.NOTHING, None, part.status, queue=False, api_visibility="private")
    part.stop.click(stop, None, None, queue=False, api_visibility="private")


def _connect_voting(context: PageContext, part: ComparePart) -> None:
    def vote_for(verdict: Verdict) -> Callable[[str, Shown], list[Any]]:
        """A handler for one button."""

        def vote(comparison_id: str, paths: Shown) -> list[Any]:
            """Count the vote and show who was who."""
            if not comparison_id:
                raise NotReady("There is nothing to vote on yet. Compare two voices first.")
            comparison = context.studio.comparing.rows.vote(comparison_id, verdict)
            return [
                render_compare.comparison_html(comparison, hear(paths)),
                vote_html(context, comparison),
                gr.update(visible=False),
                gr.update(visible=comparison.winner is not None),
                proposed_name(comparison),
                render.NOTHING,
            ]

        return vote

    def keep(comparison_id: str, name: str, request: gr.Request) -> Iterator[str]:
        """Put the winner into the library."""
        loaded = context.studio.loaded
        if loaded is None:
            raise NotReady("No model is loaded yet. Load one at the top of the page.")
        yield render.says("", "Keeping it …")
        try:
            voice = yield from follow(
                context.background_tasks,
                f"keep {request.session_hash}",
                "Keeping it",
                lambda _: context.studio.comparing.keep(loaded, comparison_id, name),
                render_dataset.task_line,
            )
        except EncoreError as error:
            yield render.says("bad", render.escaped(str(error)), role="alert")
            return
        yield render_source.saved_line(voice)

    for verdict, button in zip(VOTES, part.votes, strict=True):
        button.click(
            shows_errors(vote_for(verdict)),
            [part.comparison_id, part.paths],
            [part.takes, part.result, part.voting, part.keeping, part.name, part.status],
            api_name=f"vote_{verdict.lower()}",
            api_visibility="undocumented",
            show_progress="hidden",
        )
    part.keep.click(
        stream_shows_errors(keep),
        [part.comparison_id, part.name],
        part.kept,
        api_name="keep",
        api_visibility="undocumented",
        show_progress="hidden",
    )


def _given_sentences() -> list[str]:
    try:
        lines = STANDARD_SENTENCES.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()][:NUM_SENTENCES]


def _flag(request: gr.Request) -> str:
    return f"compare {request.session_hash}"
