"""The Compare tab: sentences by two or three voices, blind if the listener likes, and what the votes say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args
from weakref import WeakValueDictionary

import gradio as gr
from gradio.blocks import Block
from gradio.events import Dependency
from markupsafe import Markup

from backend.background_tasks import TaskCancelled
from backend.comparisons.comparison import Verdict
from backend.errors import EncoreError
from backend.serving.loaded_model import LoadedModel
from ui.context import PageContext
from ui.events import HIDE, SHOW, Inputs, Update, bind, session_of
from ui.fields import (
    FormIncomplete,
    build_language,
    build_seed,
    build_title,
    build_unseen,
    language_choices,
    require_model,
)
from ui.html.messages import NOTHING, failure, says, task_line
from ui.html.sides import side_name
from ui.html.voices import kept_line
from ui.tabs.compare.compare import (
    Listening,
    begin_listening,
    choose_sides,
    delete_listening,
    proposed_name,
    standard_sentences,
)
from ui.words.words import say, word

SCRIPT = Path(__file__).with_name("stage.js")

# Not `gr.BrowserState`, which all tabs of a browser share: another one would be shown the same test.
KEEP_KEY = "(key) => { sessionStorage.setItem('encore-listening', key); }"
KEPT_KEY = "() => sessionStorage.getItem('encore-listening') ?? ''"


class CompareTab:
    """Chooses voices, lets them speak, counts the votes, and keeps the winner."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        self.context = context
        with gr.Column(elem_id="compare-form") as self.form:
            build_title("compare.title")
            with gr.Row(elem_id="compare-sides"):
                self.first, self.second = (
                    gr.Dropdown([], value=None, label=label, min_width=280, elem_id=f"side-{number}")
                    for number, label in enumerate((word("compare.first"), word("compare.second")), 1)
                )
            with gr.Row(elem_id="compare-go"):
                self.blind = gr.Checkbox(
                    value=True, label=word("compare.blind"), container=False, min_width=200, elem_id="blind"
                )
                self.compare = gr.Button(
                    word("speak.waiting"),
                    variant="primary",
                    interactive=False,
                    scale=0,
                    min_width=200,
                    elem_id="compare",
                )
            self.status = gr.HTML(NOTHING, elem_id="compare-status")
            with gr.Accordion(word("compare.more"), open=False, elem_id="compare-settings"):
                self.text = gr.Textbox(
                    label=word("compare.sentences"),
                    value=standard_sentences(),
                    lines=6,
                    max_lines=12,
                    max_length=20_000,
                    elem_id="compare-text",
                )
                self.third = gr.Dropdown([], value=None, label=word("compare.third"), elem_id="side-3")
                with gr.Row():
                    self.language = build_language(min_width=160)
                    self.seed = build_seed(min_width=160)
        self.stage = gr.HTML(
            NOTHING, elem_id="stage", js_on_load=SCRIPT.read_text(encoding="utf-8"), apply_default_css=False
        )
        with gr.Column(visible=False, elem_id="compare-end") as self.ending:
            with gr.Row(elem_classes=["choose"], visible=False) as self.keeping:
                self.name = gr.Textbox(
                    label=word("compare.name"), max_length=64, scale=3, min_width=180, elem_id="keep-name"
                )
                self.keep = gr.Button("", variant="primary", scale=1, min_width=160, elem_id="keep")
            self.kept = gr.HTML(NOTHING, elem_id="kept")
            with gr.Row(elem_id="compare-next"):
                self.further = gr.Button(word("compare.further"), min_width=160, elem_id="further")
                self.afresh = gr.Button(word("compare.afresh"), min_width=160, elem_id="afresh")
        # What scripts of ours fill in: a vote, the end, and the voice that another tab wants compared.
        self.vote = build_unseen("vote")
        self.finish = build_unseen("finish")
        self.wished = build_unseen("compare-voice")
        self.listening = gr.State(None, delete_callback=delete_listening)
        # The key of the test that is listened to, which this tab of the browser keeps while the page is loaded anew.
        self.key = build_unseen("listening-key")
        # Of the pages that began them; see `Listening.origin`.
        self._listenings: WeakValueDictionary[str, Listening] = WeakValueDictionary()
        self.by_user = gr.State(False)
        self.proposed = gr.State("")
        self._connect(tab)

    def _connect(self, tab: gr.Tab) -> None:
        by_user = self.by_user
        sides = {"first": self.first, "second": self.second, "third": self.third}
        listed = [*sides.values(), self.language]
        asked = {**sides, "by_user": by_user, "wished": self.wished}
        opened = bind(
            [self.context.page.load, tab.select], self._list_sides, asked, listed, api="list_sides", quick=True
        )
        for side in (self.first, self.second):
            bind(side.input, lambda: {by_user: True}, None, by_user, quick=True)
        bind(self.wished.change, self._wish, asked, [*listed, by_user, *self.shown], api="compare_voice", quick=True)
        order = {
            **sides,
            "text": self.text,
            "language": self.language,
            "seed": self.seed,
            "blind": self.blind,
            "before": self.listening,
        }
        begun = bind(self.compare.click, self._begin, order, self.shown, api="begin_comparison", quick=True)
        made = {"listening": self.listening}
        # Not one at a time with those who speak: the model takes turns with them, sentence by sentence.
        bind(begun.then, self._make, made, self.shown, api="compare", concurrency_limit=None)
        further = bind(
            self.further.click,
            lambda text: {self.text: standard_sentences(after=text)},
            {"text": self.text},
            self.text,
            quick=True,
        )
        again = bind(further.then, self._begin, order, self.shown, quick=True)
        bind(again.then, self._make, made, self.shown, concurrency_limit=None)
        bind(self.afresh.click, self._start_over, made, self.shown, api="start_over", quick=True)
        names = {"name": self.name, "proposed": self.proposed}
        bind(self.vote.change, self._vote, {"pressed": self.vote, **made, **names}, self.shown, api="vote")
        bind(self.finish.change, self._finish, {**made, **names}, self.shown, api="finish_comparison", quick=True)
        bind(self.keep.click, self._keep, {**made, "name": self.name}, self.kept, api="keep")
        self._connect_key(opened, made)

    def _connect_key(self, opened: Dependency, made: Inputs) -> None:
        """A test that was not over when the page was loaded anew goes on with the votes there are."""
        self.key.change(None, self.key, None, js=KEEP_KEY, queue=False, api_visibility="private")
        restored = [
            *self.shown,
            self.first,
            self.second,
            self.third,
            self.by_user,
            self.text,
            self.language,
            self.blind,
        ]
        back = bind(
            opened.then, self._come_back, {"key": self.key}, restored, api="come_back_to_test", quick=True, js=KEPT_KEY
        )
        bind(back.then, self._make, made, self.shown, concurrency_limit=None)

    def model_update(self, loaded: LoadedModel | None) -> Update:
        """The button that begins waits for a model."""
        return {
            self.compare: gr.update(
                value=say("speak.waiting" if loaded is None else "compare.start"), interactive=loaded is not None
            )
        }

    @property
    def shown(self) -> list[Block]:
        """What changes in the course of a listening test."""
        ending = [self.ending, self.keeping, self.name, self.keep, self.proposed, self.kept]
        return [self.form, self.status, self.stage, *ending, self.listening, self.key]

    def _list_sides(
        self, first: str | None, second: str | None, third: str | None, by_user: bool, wished: str | None
    ) -> Update:
        """The voices that can be compared now."""
        sides = self.context.studio.comparisons.list_sides()
        # Until the user chooses, the newest voice is proposed: mostly the one that has just been made.
        chosen = (first, second, third) if by_user else (None, None, third)
        values = choose_sides(sides, chosen, (wished or "").partition(" ")[0])
        choices = [(side_name(side), side.key) for side in sides]
        return {
            self.first: gr.update(choices=choices, value=values[0]),
            self.second: gr.update(choices=choices, value=values[1]),
            self.third: gr.update(choices=[(say("compare.none"), ""), *choices], value=values[2] or ""),
            self.language: gr.update(choices=language_choices(self.context.studio.loaded)),
        }

    def _wish(
        self, first: str | None, second: str | None, third: str | None, by_user: bool, wished: str | None
    ) -> Update:
        """Put a voice that another tab names first, in a form that is open."""
        listed = self._list_sides(first, second, third, by_user=False, wished=wished)
        hidden: Update = {self.stage: NOTHING, self.ending: HIDE, self.status: NOTHING, self.key: ""}
        return {**listed, self.form: SHOW, **hidden}

    def _come_back(self, key: str | None) -> Update:
        """Show the test that the browser still knows, as long as its takes are here."""
        before = self._listenings.get(key or "")
        if before is None:
            return {}
        listening = before.pass_on()
        orders, keys = listening.test.orders, [side.key for side in listening.sides]
        chosen = choose_sides(self.context.studio.comparisons.list_sides(), (*keys, None)[:3])
        update: Update = {
            self.first: chosen[0],
            self.second: chosen[1],
            self.third: chosen[2] or "",
            self.by_user: True,
            self.text: "\n".join(order.text for order in orders),
            self.language: orders[0].language,
            self.blind: orders[0].is_blind,
            self.form: HIDE,
            self.stage: listening.html(self.context),
            self.listening: listening,
            self.key: listening.key,
        }
        return {**update, **self._over(listening, "", "")} if listening.is_over else update

    def _begin(
        self,
        first: str | None,
        second: str | None,
        third: str | None,
        text: str,
        language: str | None,
        seed: str | None,
        blind: bool,
        before: Listening | None,
    ) -> Update:
        """Take away the form; what stands in the way is said beside the button."""
        try:
            require_model(self.context.studio)
            chosen = [key for key in (first, second, third) if key]
            listening = begin_listening(self.context, chosen, text, language, seed, blind)
        except EncoreError as error:
            return {self.status: failure(error), self.listening: None, self.form: SHOW, self.ending: HIDE}
        delete_listening(before)
        self._listenings[listening.key] = listening
        return {
            self.key: listening.key,
            self.form: HIDE,
            self.status: NOTHING,
            self.stage: listening.html(self.context),
            self.ending: HIDE,
            self.kept: NOTHING,
            self.listening: listening,
        }

    def _make(self, listening: Listening | None, request: gr.Request) -> Iterator[Update]:
        """Let the voices speak ahead of the listener, and show each comparison as it is there."""
        if listening is None:
            return
        loaded = require_model(self.context.studio)
        seen: Markup = listening.html(self.context)

        def changed() -> Update:
            """What is to be listened to, if that is something else by now; a vote shows the end by itself."""
            nonlocal seen
            before, seen = seen, listening.html(self.context)
            is_unchanged = listening.is_over or listening.is_left or seen == before
            return {} if is_unchanged else {self.stage: seen}

        try:
            yield from self.context.follow(
                f"compare {session_of(request)}",
                say("compare.test"),
                lambda task: listening.make(self.context, loaded, task),
                lambda _: changed(),
            )
        except TaskCancelled:
            return
        except EncoreError as error:
            listening.problem = str(error)
            if listening.is_over:
                yield self._over(listening, "", "")
            return
        yield changed()

    def _vote(self, pressed: str, listening: Listening | None, name: str | None, proposed: str) -> Update:
        """Count a vote; show what is next, or who was who."""
        if not pressed:
            return {}
        comparison_id, _, verdict = pressed.partition(":")
        if listening is None or verdict not in get_args(Verdict):
            raise FormIncomplete(say("compare.nothing_to_vote"))
        listening.vote(self.context, comparison_id, cast(Verdict, verdict))
        if listening.is_over:
            return self._over(listening, name, proposed)
        return {self.stage: listening.html(self.context)}

    def _finish(self, listening: Listening | None, name: str | None, proposed: str) -> Update:
        """Leave it at the votes there are."""
        if listening is None:
            return {}
        listening.test.end()
        return self._over(listening, name, proposed)

    def _over(self, listening: Listening, name: str | None, proposed: str) -> Update:
        """What the votes say, and the voice that all of them prefer to keep; without a vote the form again."""
        voted = listening.test.voted
        if not voted:
            said = failure(listening.problem) if listening.problem else says("", say("compare.stopped"))
            return {self.form: SHOW, self.status: said, self.stage: NOTHING, self.ending: HIDE, self.key: ""}
        update: Update = {self.stage: listening.html(self.context), self.ending: SHOW, self.kept: NOTHING}
        preferred = self.context.studio.comparisons.preferred(voted[-1].id)
        if preferred is None:
            return {**update, self.keeping: HIDE}
        proposal = proposed_name(self.context, preferred)
        # A name that was typed stays.
        named = {} if (name or "").strip() not in ("", proposed) else {self.name: proposal}
        return {
            **update,
            **named,
            self.keeping: SHOW,
            self.keep: say("compare.keep", name=side_name(preferred)),
            self.proposed: proposal,
        }

    def _start_over(self, listening: Listening | None) -> Update:
        """The form again, with the voices that were chosen."""
        delete_listening(listening)
        return {
            self.form: SHOW,
            self.status: NOTHING,
            self.stage: NOTHING,
            self.ending: HIDE,
            self.kept: NOTHING,
            self.listening: None,
            self.key: "",
        }

    def _keep(self, listening: Listening | None, name: str, request: gr.Request) -> Iterator[Update]:
        """Put the winner into the library."""
        loaded = require_model(self.context.studio)
        if listening is None or not listening.test.voted:
            raise FormIncomplete(say("compare.nothing_to_vote"))
        comparison_id = listening.test.voted[-1].id
        said: Markup = says("", say("compare.saving"))
        yield {self.kept: said}
        try:
            voice = yield from self.context.follow(
                f"keep {session_of(request)}",
                say("compare.saving"),
                lambda _: self.context.studio.comparisons.keep(loaded, comparison_id, name),
                lambda state: {self.kept: task_line(state)},
            )
        except EncoreError as error:
            said = failure(error)
        else:
            said = kept_line(voice)
        yield {self.kept: said}
