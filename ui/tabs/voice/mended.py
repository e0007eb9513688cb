"""A refusal goes as soon as something is changed that it may be about: it would contradict what is there now."""

from __future__ import annotations

import json
from collections.abc import Sequence

import gradio as gr

from ui.events import Trigger
from ui.html.messages import NOTHING

_FORGET = f"""(said) => said?.includes('class="says bad"') ? {json.dumps(str(NOTHING))} : said"""
"""Runs in the browser, because texts are typed letter by letter; anything but a refusal stays."""


def forget_refusal(place: gr.HTML, triggers: Sequence[Trigger]) -> None:
    """Empty `place`, where it shows a refusal, when one of these events happens."""
    gr.on(
        triggers,
        None,
        place,
        place,
        js=_FORGET,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
