"""Messages about voices of the library that several tabs show."""

from __future__ import annotations

from markupsafe import Markup

from backend.voices.voice import Voice
from ui.html.messages import says
from ui.html.templates import html, render
from ui.words.words import say


def saved_line(voice: Voice, recording_key: str = "") -> Markup:
    """That a voice is in the library now, and for scripts of the page the recording that it was made of."""
    said = say("voices.is_there", name=voice.name)
    return says("good", html('<strong data-saved-key="{}">{}</strong> {}', recording_key, said, say("voices.goes_on")))


def kept_line(voice: Voice) -> Markup:
    """The same, with where to go from there."""
    return says("good", say("voices.is_there", name=voice.name), more=render("voices", "onward", voice=voice))
