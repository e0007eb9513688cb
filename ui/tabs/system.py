"""The system tab: what this machine has, and what is missing."""

from __future__ import annotations

import gradio as gr

from ui.workbench import Workbench

ABOUT = '<p class="note">What Encore stores lies in <code>{home}</code>.</p>'


def build_system_tab(bench: Workbench, tab: gr.Tab) -> None:
    """Lay the tab out."""
    gr.HTML("<h2>System</h2>", elem_classes=["step"])
    gr.HTML(ABOUT.format(home=bench.settings.home_folder))
