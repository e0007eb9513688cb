"""The dock at the bottom: it shows and controls whatever sounds. `player.js` makes it work."""

from __future__ import annotations

import gradio as gr

from ui.html.templates import render


def build_dock() -> gr.HTML:
    """The player, hidden until something is played."""
    return gr.HTML(
        render("dock", "dock"), elem_id="dock", js_on_load="encore.player.dock(element)", apply_default_css=False
    )
