"""The Compare tab: the same text and seed by two or three voices, blind if the listener likes, and a vote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
from markupsafe import Markup

from backend.background_tasks import BackgroundTask
from backend.comparisons.comparison import Verdict
from backend.comparisons.make_comparison import MAX_TEXT_LENGTH, ComparisonOrder, FinishedComparison
from backend.errors import EncoreError
from backend.evaluation.plan import STANDARD_SENTENCES
from ui.context import PageContext
from ui.events import HIDE, SHOW, Update, bind, session_of
from ui.fields import FormIncomplete, build_language, build_seed, language_choices, require_model
from ui.html.messages import NOTHING, failure, heading, note, says, task_line
from ui.html.templates import html
from ui.html.voices import saved_line
from ui.tabs.compare.compare import Shown, choose_sides, delete_paths, hear, proposed_name, read_order, vote_html
from ui.tabs.compare.render import ABOUT, VERDICTS, comparison_html, progress_line
from ui.web.temporary import unguessable_path

STOP_BUTTON_ID = "stop-compare"
NUM_SENTENCES = 5
SIDES = ("First voice", "Second voice", "Third voice (optional)")
VOTES: tuple[Verdict, ...] = ("A", "B", "C", "same", "bad")


class CompareTab:
    """Chooses voices, lets them speak, counts the vote, and keeps the winner."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        self.context = context
        gr.HTML(heading("Compare"), elem_classes=["step"])
        gr.HTML(note(ABOUT))
        with gr.Row():
            self.first, self.second, self.third = (
                # Two in a row: what tells two ways of one voice apart stands at the end of a label.
                gr.Dropdown([], value=None, label=label, min_width=420, elem_id=f"side-{number}")
                for number, label in enumerate(SIDES, 1)
            )
        sentences = _given_sentences()
        self.given = gr.Dropdown(
            sentences, value=None, label="A standard sentence (optional)", elem_id="given-sentence"
        )
        self.text = gr.Textbox(
            label="Text for all of them",
            value=sentences[0] if sentences else "",
            lines=2,
            max_length=MAX_TEXT_LENGTH,
            elem_id="compare-text",
        )
        with gr.Row():
            self.language = build_language(min_width=160)
            self.seed = build_seed(min_width=160)
        self.blind = gr.Checkbox(
            value=True, label="Blind: do not show me who is who before I have voted", elem_id="blind"
        )
        with gr.Row():
            self.compare = gr.Button("Compare", variant="primary", elem_id="compare")
            self.stop = gr.Button("Stop", elem_id=STOP_BUTTON_ID)
        self.status = gr.HTML(NOTHING, elem_id="compare-status")
        self.takes = gr.HTML(NOTHING, elem_id="compare-takes")
        with gr.Row(visible=False, elem_id="voting") as self.voting:
            self.votes = {
                verdict: gr.Button(VERDICTS[verdict], min_width=120, elem_id=f"vote-{verdict}") for verdict in VOTES
            }
        self.result = gr.HTML(NOTHING, elem_id="vote-result")
        with gr.Row(visible=False, elem_classes=["choose"]) as self.keeping:
            self.name = gr.Textbox(
                label="Name of the voice to keep", max_length=64, scale=3, min_width=180, elem_id="keep-name"
            )
            self.keep = gr.Button("Keep this voice", variant="primary", scale=1, min_width=140, elem_id="keep")
        self.kept = gr.HTML(NOTHING, elem_id="kept")
        self.comparison_id, self.proposed = gr.State(""), gr.State("")
        self.paths = gr.State({}, delete_callback=delete_paths)
        self._connect(tab)

    def _connect(self, tab: gr.Tab) -> None:
        by_user = gr.State(False)
        sides = {"first": self.first, "second": self.second, "third": self.third}
        bind(
            [tab.select, self.context.page.load],
            self._list_sides,
            {**sides, "by_user": by_user},
            [*sides.values(), self.language],
            api="list_sides",
            quick=True,
        )
        for side in (self.first, self.second):
            bind(side.input, lambda: {by_user: True}, None, by_user, quick=True)
        bind(self.given.input, lambda sentence: {self.text: sentence}, {"sentence": self.given}, self.text, quick=True)
        cleared = [self.status, self.takes, self.result, self.kept, self.voting, self.keeping]
        begun = bind(self.compare.click, self._begin, None, cleared, quick=True)
        order = {
            **sides,
            "text": self.text,
            "language": self.language,
            "seed": self.seed,
            "blind": self.blind,
            "before": self.paths,
        }
        made = [self.status, self.takes, self.voting, self.votes["C"], self.comparison_id, self.paths]
        run = bind(begun.then, self._compare, order, made, api="compare", concurrency_id="model", concurrency_limit=1)
        bind(run.failure, lambda: {self.status: NOTHING}, None, self.status, quick=True)
        bind(self.stop.click, self._stop, quick=True)
        proposed = [self.name, self.proposed, self.keep]
        voted = [self.takes, self.result, self.voting, self.keeping, *proposed, self.status]
        heard = {
            "comparison_id": self.comparison_id,
            "paths": self.paths,
            "name": self.name,
            "proposed": self.proposed,
        }
        for verdict, button in self.votes.items():
            bind(button.click, self._voting_for(verdict), heard, voted, api=f"vote_{verdict.lower()}")
        winner = {"comparison_id": self.comparison_id, "name": self.name}
        bind(self.keep.click, self._keep, winner, self.kept, api="keep")

    def _list_sides(self, first: str | None, second: str | None, third: str | None, by_user: bool) -> Update:
        """The voices that can be compared now."""
        sides = self.context.studio.comparisons.list_sides()
        # Until the user chooses, the newest voice is proposed: mostly the one that has just been made.
        values = choose_sides(sides, (first, second, third) if by_user else (None, None, third))
        choices = [(side.label, side.key) for side in sides]
        return {
            self.first: gr.update(choices=choices, value=values[0]),
            self.second: gr.update(choices=choices, value=values[1]),
            self.third: gr.update(choices=[("None", ""), *choices], value=values[2] or ""),
            self.language: gr.update(choices=language_choices(self.context.studio.loaded)),
        }

    def _begin(self, request: gr.Request) -> Update:
        """Take away the comparison before."""
        self.context.flags.begin(_flag(request))
        nothing = dict.fromkeys([self.takes, self.result, self.kept], NOTHING)
        return {self.status: says("", "Waiting for its turn …"), **nothing, self.voting: HIDE, self.keeping: HIDE}

    def _stop(self, request: gr.Request) -> None:
        self.context.flags.stop(_flag(request))

    def _compare(
        self,
        first: str | None,
        second: str | None,
        third: str | None,
        text: str,
        language: str | None,
        seed: str,
        blind: bool,
        before: Shown,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Let all of them speak, and show each as it is ready."""
        with self.context.flags.watch(_flag(request)) as is_stopped:
            chosen = [key for key in (first, second, third) if key]
            order = read_order(self.context, chosen, text, language, seed, blind)
            yield from self._speak(order, is_stopped, before, session_of(request))

    def _speak(
        self, order: ComparisonOrder, is_stopped: Callable[[], bool], before: Shown, session: str
    ) -> Iterator[Update]:
        loaded = require_model(self.context.studio)
        now: Update = {}

        def work(task: BackgroundTask[Any]) -> FinishedComparison | None:
            """Speak with all voices, and report progress."""
            nonlocal now
            steps = self.context.studio.comparisons.compare(
                loaded,
                order,
                lambda name: unguessable_path(self.context.folder, name),
                cancelled=lambda: is_stopped() or task.is_cancelled(),
            )
            for step in steps:
                if isinstance(step, FinishedComparison):
                    return step
                now = {self.status: progress_line(step)}
            return None

        done = yield from self.context.follow(f"compare {session}", "Comparing", work, lambda _: now)
        if done is None:
            yield {self.status: says("", "Stopped.")}
            return
        delete_paths(before)
        yield {
            self.status: says("good", html("<strong>Ready.</strong> Listen to all of them, then vote.")),
            self.takes: comparison_html(done.comparison, hear(done.paths)),
            self.voting: SHOW,
            self.votes["C"]: gr.update(visible=len(done.comparison.takes) > 2),
            self.comparison_id: done.comparison.id,
            self.paths: done.paths,
        }

    def _voting_for(self, verdict: Verdict) -> Callable[[str, Shown, str, str], Update]:
        """A handler for one of the buttons."""

        def vote(comparison_id: str, paths: Shown, name: str, proposed: str) -> Update:
            """Count the vote, show who was who, and offer to keep the one that is ahead in all votes."""
            if not comparison_id:
                raise FormIncomplete("There is nothing to vote on yet. Compare two voices first.")
            comparison = self.context.studio.comparisons.votes.vote(comparison_id, verdict)
            update: Update = {
                self.takes: comparison_html(comparison, hear(paths)),
                self.result: vote_html(self.context, comparison),
                self.voting: HIDE,
                self.keeping: HIDE,
                self.status: NOTHING,
            }
            preferred = self.context.studio.comparisons.preferred(comparison_id)
            if preferred is None:
                return update
            update |= {
                self.keeping: SHOW,
                self.keep: f"Keep {preferred.label}",
                self.proposed: proposed_name(preferred),
            }
            # A name that was typed stays.
            return update if name.strip() not in ("", proposed) else {**update, self.name: proposed_name(preferred)}

        return vote

    def _keep(self, comparison_id: str, name: str, request: gr.Request) -> Iterator[Update]:
        """Put the winner into the library."""
        loaded = require_model(self.context.studio)
        said: Markup = says("", "Saving it …")
        yield {self.kept: said}
        try:
            voice = yield from self.context.follow(
                f"keep {session_of(request)}",
                "Saving it",
                lambda _: self.context.studio.comparisons.keep(loaded, comparison_id, name),
                lambda state: {self.kept: task_line(state)},
            )
        except EncoreError as error:
            said = failure(error)
        else:
            said = saved_line(voice)
        yield {self.kept: said}


def _given_sentences() -> list[str]:
    try:
        lines = STANDARD_SENTENCES.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip()][:NUM_SENTENCES]


def _flag(request: gr.Request) -> str:
    return f"compare {session_of(request)}"
