"""Form fields that several tabs have, and what their values mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gradio as gr

from backend.errors import EncoreError
from backend.serving.loaded_model import LoadedModel
from backend.studio import Studio
from backend.voices.consent import StatementKind
from training.model.seed import MAX_SEED
from ui.context import PageContext
from ui.events import HIDE, SHOW, bind
from ui.html.templates import html
from ui.html.words import language_name
from ui.words.words import say, word

STATEMENT_WORDS: Mapping[StatementKind, str] = MappingProxyType(
    {
        "own-voice": "consent.own_voice",
        "speaker-agreed": "consent.speaker_agreed",
        "synthetic": "consent.synthetic",
    }
)


class FormIncomplete(EncoreError):
    """Something on the page is still to be filled in or loaded."""


def require_model(studio: Studio) -> LoadedModel:
    """The loaded model. Raises FormIncomplete."""
    if studio.loaded is None:
        raise FormIncomplete(say("fields.no_model"))
    return studio.loaded


def parse_seed(written: str) -> int | None:
    """The seed in a text field, None if it is empty. Raises FormIncomplete for anything but a whole number."""
    digits = written.strip()
    if not digits:
        return None
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > MAX_SEED:
        raise FormIncomplete(say("fields.seed_wrong", written=repr(digits), most=MAX_SEED))
    return int(digits)


def language_choices(loaded: LoadedModel | None) -> list[tuple[str, str]]:
    """Labels and names of the languages that the model speaks."""
    languages: Sequence[str] = loaded.facts.languages if loaded is not None else ()
    return [(say("speak.automatic"), "auto"), *((language_name(name), name) for name in languages)]


def build_language(**options: Any) -> gr.Dropdown:
    """The field for a language; a model adds its own to the choices."""
    return gr.Dropdown([(word("speak.automatic"), "auto")], value="auto", label=word("fields.language"), **options)


def build_seed(**options: Any) -> gr.Textbox:
    """The field that `parse_seed` reads. Not gr.Number, which turns an empty field into 0."""
    return gr.Textbox(
        value="", label=word("fields.seed"), placeholder=word("fields.seed_random"), max_length=19, **options
    )


def build_consent(context: PageContext, prefix: str = "") -> tuple[gr.Radio, gr.Textbox]:
    """The fields for the statement and for the name of the person who makes it."""
    statement = gr.Radio(
        [(word(key), kind) for kind, key in STATEMENT_WORDS.items()],
        label=word("consent.label"),
        info=word("consent.help"),
        elem_id=f"{prefix}consent",
    )
    # Said by Python, which also keeps the sentence: Gradio may show it in another of the languages a browser accepts.
    context.when_opened[statement] = lambda: gr.update(choices=statement_choices())
    return statement, gr.Textbox(label=word("consent.who"), max_length=200, elem_id=f"{prefix}who")


def statement_choices() -> list[tuple[str, str]]:
    """The statements as they are said, and stored with what is agreed to."""
    return [(say(key), kind) for kind, key in STATEMENT_WORDS.items()]


def build_title(key: str) -> gr.HTML:
    """The title of a part of a tab, by its word."""
    title = html('<h2 data-word="{}">{}</h2>', key, say(key))
    return gr.HTML(title, elem_classes=["step"], js_on_load="encore.words.apply(element)", apply_default_css=False)


def build_note(key: str) -> gr.HTML:
    """A remark in small print, by its word."""
    return build_words(html('<p class="note" data-word="{}">{}</p>', key, say(key)))


def build_words(value: str) -> gr.HTML:
    """HTML that stays as it is, its elements with a `data-word` in the visitor's language."""
    return gr.HTML(value, js_on_load="encore.words.apply(element)")


def build_unseen(elem_id: str) -> gr.Textbox:
    """A field that scripts of ours fill in: what was pressed, or chosen on another tab. It has a `change` event."""
    return gr.Textbox("", show_label=False, elem_id=elem_id, elem_classes=["unseen"])


class Confirmation:
    """Buttons that ask whether something is really to be deleted; `really` is the one that does it."""

    def __init__(self, yes: str, name: str) -> None:
        """Lay the row out, hidden; `name` is part of its buttons' ids."""
        with gr.Row(visible=False) as self.row:
            self.really = gr.Button(yes, variant="stop", min_width=200, elem_id=f"really-delete{name}")
            self.back = gr.Button(word("fields.keep_it"), min_width=120, elem_id=f"keep{name or '-it'}")
        bind(self.back.click, lambda: {self.row: HIDE}, None, self.row, quick=True)

    def ask_on(self, delete: gr.Button) -> None:
        """Show the row when the button is pressed."""
        bind(delete.click, lambda: {self.row: SHOW}, None, self.row, quick=True)
