"""The Speak tab: a recording, its verdict, and the voice speaking any text at once."""

from __future__ import annotations

import gradio as gr

from ui.context import PageContext
from ui.tabs.voice.source import SourcePart
from ui.tabs.voice.speak import SpeechPart


class VoiceTab:
    """Whose voice it is on the left, what it says on the right."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        with gr.Row(equal_height=False):
            with gr.Column(min_width=320):
                self.source = SourcePart(context, tab)
            with gr.Column(min_width=320):
                self.speech = SpeechPart(context, self.source.fields)
