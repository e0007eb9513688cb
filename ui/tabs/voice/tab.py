"""The Speak tab: a rail of voices, the steps to a new one, a text, and the voice speaking it at once."""

from __future__ import annotations

import gradio as gr

from ui.context import PageContext
from ui.tabs.voice.draft import Draft
from ui.tabs.voice.source import SourcePart
from ui.tabs.voice.speak import SpeechPart


class VoiceTab:
    """Whose voice it is on the left, what it says on the right."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        with gr.Column(elem_id="speak-page"):
            self.source = SourcePart(context, tab)
            self.speech = SpeechPart(context, self.source.fields)
        self.draft = Draft(context, self.source, self.speech)
