"""Consent said aloud: a phrase that exists on no recording yet, spoken by the voice that is to be cloned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gradio as gr

from backend.background_tasks import TaskState
from backend.errors import EncoreError
from backend.voices.consent import hash_of_file
from backend.voices.consent_phrase import draw_phrase
from ui.context import PageContext
from ui.events import HIDE, SHOW, Update, bind, session_of
from ui.fields import FormIncomplete, build_note, require_model
from ui.html.messages import NOTHING, failure, says, task_line
from ui.html.templates import html
from ui.source import Source
from ui.tabs.voice.render import phrase_card
from ui.words.words import say, word


class SpokenConsent:
    """A sentence to read aloud; `proof` is None until it was heard, and belongs to the source it was heard with."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        with gr.Accordion(word("speak.aloud"), open=False, elem_id="spoken-consent"):
            build_note("speak.phrase_note")
            self.ask = gr.Button(word("speak.show_phrase"), elem_id="draw-phrase")
            self.shown = gr.HTML(NOTHING, elem_id="phrase")
            self.microphone = gr.Audio(
                label=word("speak.read_it"),
                sources=["microphone", "upload"],
                type="filepath",
                buttons=[],
                elem_id="spoken",
            )
            with gr.Row():
                self.check = gr.Button(word("speak.check_it"), elem_id="check-phrase")
                self.stop = gr.Button(word("sheet.cancel"), visible=False, elem_id="stop-phrase")
            self.result = gr.HTML(NOTHING, elem_id="spoken-result")
        self.phrase = gr.State("")
        self.proof = gr.State(None)

    def connect(self, source: gr.State) -> None:
        """Connect its events; `source` is whose voice has to speak."""
        drawn = [self.phrase, self.shown, self.microphone, self.proof, self.result]
        bind(self.ask.click, self._draw, None, drawn, api="draw_phrase", quick=True)
        inputs = {"phrase": self.phrase, "recorded": self.microphone, "source": source}
        bind(self.check.click, self._listen, inputs, [self.result, self.proof, self.stop], api="check_phrase")
        bind(self.stop.click, self._stop, quick=True)
        bind(
            source.change, lambda: {self.proof: None, self.result: NOTHING}, None, [self.proof, self.result], quick=True
        )

    def _draw(self) -> Update:
        """Another phrase; a recording of the one before does not prove it."""
        phrase = draw_phrase()
        return {
            self.phrase: phrase,
            self.shown: phrase_card(phrase),
            self.microphone: None,
            self.proof: None,
            self.result: NOTHING,
        }

    def _listen(
        self, phrase: str, recorded: str | None, source: Source | None, request: gr.Request
    ) -> Iterator[Update]:
        """Check the recording and say what was heard."""
        yield {self.result: says("", f"{say('speak.listening_now')} …"), self.proof: None}
        studio = self.context.studio
        try:
            if source is None or source.preview is None:
                raise FormIncomplete(say("speak.phrase_needs_voice"))
            if not phrase:
                raise FormIncomplete(say("speak.phrase_needs_phrase"))
            if recorded is None:
                raise FormIncomplete(say("speak.phrase_needs_reading"))
            loaded, spoken, reference = require_model(studio), Path(recorded), source.preview
            recording = hash_of_file(source.reference) if source.reference is not None else None
            proof = yield from self.context.follow(
                f"phrase {session_of(request)}",
                say("speak.listening_now"),
                lambda _: studio.prove_consent(loaded, phrase, spoken, reference, recording),
                self._under_way,
            )
        except FormIncomplete as missing:
            yield {self.result: says("mixed", str(missing))}
        except EncoreError as error:
            yield {self.result: failure(error), self.stop: HIDE}
        else:
            heard = says("good", html("<strong>{}</strong> “{}”", say("speak.phrase_heard"), proof.heard))
            yield {self.result: heard, self.proof: proof, self.stop: HIDE}

    def _under_way(self, state: TaskState[object]) -> Update:
        return {self.result: task_line(state), self.stop: SHOW}

    def _stop(self, request: gr.Request) -> None:
        self.context.background_tasks.cancel(f"phrase {session_of(request)}")
