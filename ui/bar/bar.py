"""The bar: wordmark, the five places, and the switches; `bar.js` drives Gradio's hidden tabs from it."""

from __future__ import annotations

import gradio as gr

from ui.bar.activity import ActivityPart
from ui.bar.model import ModelPart
from ui.context import PageContext
from ui.html.templates import render

PLACES = {"speak": "Speak", "data": "Data", "tune": "Tune", "compare": "Compare", "voices": "Voices"}
"""Ids of the tabs, which are also their addresses, and what they are called in English."""


class Bar:
    """What stands above every tab. The sheet that its chip opens is laid out by the caller, in `model.sheet`."""

    def __init__(self, context: PageContext) -> None:
        with gr.Row(elem_id="bar"):
            fixed_html(render("bar", "bar", places=list(PLACES.items())), "bar-places")
            self.activity = ActivityPart(context)
            self.model = ModelPart(context)
            fixed_html(render("bar", "switches", has_password=context.settings.auth is not None), "bar-switches")


def fixed_html(value: str, elem_id: str) -> gr.HTML:
    """HTML that stays as it is, its words in the visitor's language."""
    return gr.HTML(value, elem_id=elem_id, js_on_load="encore.words.apply(element)", apply_default_css=False)
