"""HTML in which every value is escaped: Jinja2 templates for cards and tables, and single sentences."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ui.html import words
from ui.words.sentences import translated
from ui.words.words import say, say_count

_FOLDER = Path(__file__).with_name("templates")
_FILTERS = (
    words.consent_in_words,
    words.file_url,
    words.gib,
    words.language_name,
    words.purpose_in_words,
    words.size_in_words,
    translated,
)


def html(sentence: str, *values: Any) -> Markup:
    """A sentence with markup, `values` in place of its `{}`; those that are not HTML already are escaped."""
    return Markup(sentence).format(*values)


def render(template: str, macro: str, /, **values: Any) -> Markup:
    """What a macro of a template in `ui/html/templates` makes of the values."""
    module: Any = _environment().get_template(f"{template}.html").module
    return Markup(getattr(module, macro)(**values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in _FILTERS}
    # The words of whoever is answered; asked for while a macro is filled in.
    environment.globals |= {"say": say, "say_count": say_count}
    return environment
