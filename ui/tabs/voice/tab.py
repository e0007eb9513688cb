"""The Speak tab: a rail of voices, the steps to a new one, a text, and the voice speaking it at once."""

from __future__ import annotations

import gradio as gr

from ui.context import PageContext
from ui.tabs.voice.draft import Draft
from ui.tabs.voice.mended import forget_refusal
from ui.tabs.voice.source import SourcePart
from ui.tabs.voice.speak import SpeechPart


class VoiceTab:
    """Whose voice it is on the left, what it says on the right."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        with gr.Column(elem_id="speak-page"):
            self.source = SourcePart(context, tab)
            self.speech = SpeechPart(context, self.source.fields)
        self.draft = Draft(context, self.source, self.speech)
        self._forget_refusals()

    def _forget_refusals(self) -> None:
        """What stands beside Speak and beside Save is about the same recording and its consent."""
        source, speech = self.source, self.speech
        agreed = [source.source.change, source.statement.change, source.who.change, source.spoken.proof.change]
        filled = [source.transcript.change, speech.text.change, speech.way.change, speech.seed.change]
        forget_refusal(speech.status, [*agreed, *filled, source.save.click])
        forget_refusal(source.saved_note, [*agreed, source.name.change, source.accept.change, speech.speak.click])
