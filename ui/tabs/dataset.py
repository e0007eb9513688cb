"""The dataset tab: recordings become clips with transcripts, and a person decides which to learn from."""

from __future__ import annotations

import gradio as gr

from ui.tabs.voice_source import VoicePart
from ui.workbench import Workbench

ABOUT = (
    '<p class="note">A fine-tune learns from clips: single sentences, each with what it says. Ten minutes of one '
    "person are a good start.</p>"
)


def build_dataset_tab(bench: Workbench, tab: gr.Tab, voice: VoicePart) -> None:
    """Lay the tab out; `voice` holds the recordings and the consent given on the voice tab."""
    gr.HTML("<h2>Dataset</h2>", elem_classes=["step"])
    gr.HTML(ABOUT)
