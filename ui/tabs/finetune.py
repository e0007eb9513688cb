"""The fine-tune tab: a run planned, started, watched and steered."""

from __future__ import annotations

import gradio as gr

from ui.workbench import Workbench

ABOUT = (
    '<p class="note">A fine-tune changes the model itself to speak like one person. It goes on when this page is '
    "closed.</p>"
)


def build_finetune_tab(bench: Workbench, tab: gr.Tab) -> None:
    """Lay the tab out."""
    gr.HTML("<h2>Fine-tune</h2>", elem_classes=["step"])
    gr.HTML(ABOUT)
