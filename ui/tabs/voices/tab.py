"""The Voices tab: a card for each voice with a sentence in it, and what can be done with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block

from backend.background_tasks import BackgroundTask, TaskCancelled, TaskState
from backend.errors import EncoreError
from backend.store.errors import TrashNotFound
from backend.voices.voice import Voice
from ui.context import PageContext
from ui.events import HIDE, SHOW, SaidInPlace, Update, bind, session_of
from ui.fields import FormIncomplete, build_title, build_unseen
from ui.html.avatar import avatar_html
from ui.html.messages import NOTHING, download_link, failure, says, task_line
from ui.html.templates import html
from ui.html.voices import kept_line
from ui.html.words import size_in_words
from ui.tabs.voices.introducing import Introducing
from ui.tabs.voices.order import Order
from ui.tabs.voices.render import Said, ShownVoice, shelf_html
from ui.tabs.voices.space import SpacePart
from ui.takes import ApiTakes
from ui.web.temporary import unguessable_path
from ui.words.words import say, word

POLL_SECONDS = 1.0

SCRIPT = Path(__file__).with_name("orders.js")


class VoicesTab:
    """Lists the voices, and renames, deletes, exports and imports them."""

    def __init__(
        self,
        context: PageContext,
        tab: gr.Tab,
        browser: gr.State,
        tune: Callable[[Voice, gr.Request], tuple[str, Update]],
        tuned: Sequence[Block],
    ) -> None:
        """Lay it out.

        Args:
            context: what every tab is built with.
            tab: its place.
            browser: whose takes in the trash may be told.
            tune: makes another tab ready to tune a voice, and says which; it changes what is in `tuned`.
            tuned: components of other tabs.
        """
        self.context, self.tune, self.tuned = context, tune, tuned
        self.introducing = Introducing(context)
        with gr.Row(elem_id="voices-head"):
            build_title("voices.title")
            self.new = gr.Button(word("voices.new"), scale=0, min_width=170, elem_id="voices-new")
            self.import_ = gr.UploadButton(
                word("voices.import"),
                file_types=[".encore-voice"],
                scale=0,
                min_width=140,
                elem_id="import-voice",
            )
        self.status = gr.HTML(NOTHING, elem_id="import-status")
        self.cancel = gr.Button(word("voices.cancel"), visible=False, elem_id="cancel-file")
        self.shelf = gr.HTML(
            "", elem_id="shelf", js_on_load=SCRIPT.read_text(encoding="utf-8"), apply_default_css=False
        )
        with gr.Accordion(word("voices.api_takes"), open=False, elem_id="api-takes-section"):
            ApiTakes(context, tab)
        with gr.Accordion(word("voices.space"), open=False, elem_id="space-section"):
            self.space = SpacePart(context, browser)
        # What scripts of ours fill in, and what they are told.
        self.order = build_unseen("voice-order")
        self.goal = build_unseen("voice-goal")
        self.said, self.shown = gr.State(None), gr.State("")
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        self._connect(tab)

    def _connect(self, tab: gr.Tab) -> None:
        listing: list[Block] = [self.shelf, self.shown, self.timer, self.said]
        opened = [*listing, self.space.listed]
        browser = {"browser": self.space.browser}
        bind([tab.select, self.context.page.load], self._open, browser, opened, api="list_voices", quick=True)
        seen = {"shown": self.shown, "said": self.said}
        bind(self.timer.tick, self._look, seen, listing, api="look_at_voices", quick=True)
        changed = [*listing, self.space.listed, self.goal, *self.tuned]
        given = {"order": self.order, "said": self.said, **browser}
        ordered = bind(self.order.change, self._do, given, changed, api="change_voice", concurrency_limit=4)
        ordered.then(
            None,
            [self.goal],
            None,
            js="(goal) => { goal && encore.nav.go(goal); }",
            show_progress="hidden",
            queue=False,
            api_visibility="private",
        )
        self.space.connect(lambda: self._list(None), listing)
        self.new.click(
            None, None, None, js="() => { encore.nav.go('speak'); encore.voice.open(true); }", api_visibility="private"
        )
        importing = {"file": self.import_}
        imported = [*listing, self.status, self.cancel]
        bind(self.import_.upload, self._import, importing, imported, api="import_voice")
        bind(self.cancel.click, self._cancel, api="cancel_file", quick=True)

    def _open(self, browser: str) -> Update:
        """All voices; sentences that are missing are spoken from now on."""
        is_making = self.introducing.start(tries_again=True)
        return {**self._list(None), self.timer: gr.Timer(active=is_making), self.space.listed: self.space.html(browser)}

    def _look(self, shown: str, said: Said | None) -> Update:
        """What has changed while sentences are being spoken."""
        is_making = self.introducing.start()
        update = self._list(said)
        timer: Update = {self.timer: gr.Timer(active=is_making)}
        return timer if update[self.shelf] == shown else {**update, **timer}

    def _list(self, said: Said | None) -> Update:
        """The cards, with an answer to what was pressed on one of them."""
        listed = shelf_html([self._shown(voice) for voice in reversed(self.context.studio.voices.list())], said)
        return {self.shelf: listed, self.shown: listed, self.said: said}

    def _shown(self, voice: Voice) -> ShownVoice:
        studio = self.context.studio
        recording = self.context.files.place(voice.reference) if voice.reference is not None else None
        loaded = studio.loaded
        return ShownVoice(
            voice=voice,
            avatar=avatar_html(recording, voice.id),
            sentence=self.introducing.find(voice),
            hint=self.introducing.hint(voice),
            votes=studio.comparisons.standing(voice),
            model=loaded.name if loaded is not None else self.context.settings.model,
        )

    def _do(self, order: str, said: Said | None, browser: str, request: gr.Request) -> Iterator[Update]:
        """Do what was pressed on a card; the answer stands there."""
        if not order:
            return
        pressed = Order.read(order)
        try:
            match pressed.do:
                case "export":
                    yield from self._export(pressed.id, request)
                case "tune":
                    goal, ready = self.tune(self._get(pressed.id), request)
                    yield {self.goal: goal, **ready}
                case "rename":
                    voice = self.context.studio.voices.rename(self._get(pressed.id).id, pressed.name)
                    yield self._answer(voice.id, says("good", say("voices.renamed", name=voice.name)))
                case "delete":
                    yield {**self._delete(pressed.id), self.space.listed: self.space.html(browser)}
                case _:
                    yield {**self._take_back(pressed.do, said), self.space.listed: self.space.html(browser)}
        except EncoreError as error:
            yield self._answer(pressed.id, failure(error))
            raise SaidInPlace(str(error)) from error

    def _get(self, voice_id: str) -> Voice:
        return self.context.studio.voices.get(voice_id)

    def _answer(self, voice_id: str, words: str) -> Update:
        return {**self._list(Said(voice_id=voice_id, words=html("{}", words))), self.goal: ""}

    def _delete(self, voice_id: str) -> Update:
        """Put a voice into the trash; where its card was it can be brought back."""
        listed = [voice.id for voice in reversed(self.context.studio.voices.list())]
        deleted = self.context.studio.delete_voice(self._get(voice_id).id)
        place = listed.index(voice_id) if voice_id in listed else 0
        return {**self._list(Said(voice_id=voice_id, deleted=deleted, place=place)), self.goal: ""}

    def _take_back(self, what: str, said: Said | None) -> Update:
        """Restore what was just deleted, or remove it for good."""
        if said is None or said.deleted is None:
            raise TrashNotFound(say("voices.not_in_trash"))
        if what == "purge":
            self.context.studio.trash.purge(said.deleted.id)
            return {**self._list(None), self.goal: ""}
        voice = self._get(self.context.studio.trash.restore(said.deleted.id).item_id)
        return self._answer(voice.id, says("good", say("voices.is_back", name=voice.name)))

    def _export(self, voice_id: str, request: gr.Request) -> Iterator[Update]:
        """Write its file, and offer it."""
        voice = self._get(voice_id)
        folder = unguessable_path(self.context.folder, "export").parent
        yield self._answer(voice.id, says("", f"{say('voices.exporting')} …"))

        def export(task: BackgroundTask[Any]) -> Path:
            """Write the voice file."""
            return self.context.studio.voices.export(voice.id, folder, report=task.report)

        path = yield from self.context.follow(
            f"file {session_of(request)}", say("voices.exporting"), export, lambda _: {}
        )
        link, size = download_link(path, say("voices.download")), size_in_words(path.stat().st_size)
        words = html("{} {} ({})", say("voices.file_ready", name=path.name), link, size)
        yield self._answer(voice.id, says("good", words))

    def _import(self, file: str | None, request: gr.Request) -> Iterator[Update]:
        """Make a voice from a file; one whose name is taken gets a free one."""
        if not file:
            raise FormIncomplete(say("voices.no_file"))

        def import_(task: BackgroundTask[Any]) -> Voice:
            """Check the voice file, and add its voice to the library."""
            return self.context.studio.voices.import_(Path(file), report=task.report, renames=True)

        try:
            voice = yield from self.context.follow(
                f"file {session_of(request)}", say("voices.checking"), import_, self._under_way
            )
        except TaskCancelled:
            yield {self.status: says("", say("voices.cancelled")), self.cancel: HIDE}
            return
        except EncoreError as error:
            yield {self.status: failure(error), self.cancel: HIDE}
            return
        is_making = self.introducing.start()
        yield {
            **self._list(None),
            self.status: kept_line(voice),
            self.cancel: HIDE,
            self.timer: gr.Timer(active=is_making),
        }

    def _cancel(self, request: gr.Request) -> None:
        self.context.background_tasks.cancel(f"file {session_of(request)}")

    def _under_way(self, state: TaskState[Any]) -> Update:
        """Progress of a file, and a way to stop it."""
        return {self.status: task_line(state, size_in_words), self.cancel: SHOW}
