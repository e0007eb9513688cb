"""The library tab: voices with where they come from and who agreed to them."""

from __future__ import annotations

import gradio as gr

from ui.workbench import Workbench


def build_library_tab(bench: Workbench, tab: gr.Tab) -> None:
    """Lay the tab out."""
    gr.HTML("<h2>Library</h2>", elem_classes=["step"])
