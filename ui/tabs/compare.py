"""The compare tab: the same text and seed by two or three voices, blind if the listener likes, and a vote."""

from __future__ import annotations

import gradio as gr

from ui.workbench import Workbench


def build_compare_tab(bench: Workbench, tab: gr.Tab) -> None:
    """Lay the tab out."""
    gr.HTML("<h2>Compare</h2>", elem_classes=["step"])
