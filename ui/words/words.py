"""Words by key. A language is one file beside this one, and all files have the same keys.

`word` is for labels, which the browser translates; `say` is for what Python says while it handles an event, in the
language of whoever sent it. Scripts of ours find the same words in `encore.words`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import gradio as gr

FIRST_LANGUAGE = "en"

_language: ContextVar[str] = ContextVar("language", default=FIRST_LANGUAGE)


@cache
def tables() -> Mapping[str, Mapping[str, str]]:
    """Words by language and key: `tables()["en"]["bar.speak"]`."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return {file.stem: _flat(tomllib.loads(file.read_text(encoding="utf-8"))) for file in files}


@cache
def translations() -> gr.I18n:
    """The same for Gradio, which picks the browser's language."""
    return gr.I18n(**{language: dict(table) for language, table in tables().items()})


def word(key: str) -> str:
    """A label, placeholder or help text in the browser's language. Raises KeyError for a key that is not there."""
    assert key in tables()[FIRST_LANGUAGE], key
    # Gradio's own type is no string, but stands wherever a label may.
    return str(translations()(key))


def say(key: str, **values: object) -> str:
    """A sentence in the language of the request that is being answered. Raises KeyError."""
    return tables()[_language.get()][key].format(**values)


def spoken_language() -> str:
    """The language of the request that is being answered: `en`, `de`."""
    return _language.get()


def say_count(number: int, one: str, many: str) -> str:
    """`1 clip`, `2 clips`: one of two sentences, by their keys. Raises KeyError."""
    return say(one if number == 1 else many, number=number)


@contextmanager
def spoken_to(accepted: str | None) -> Iterator[None]:
    """What is said in the block is said in the language of an `Accept-Language` header."""
    token = _language.set(best_language(accepted))
    try:
        yield
    finally:
        _language.reset(token)


def best_language(accepted: str | None) -> str:
    """The first language of an `Accept-Language` header that there are words in."""
    wanted = [part.partition(";") for part in (accepted or "").split(",")]
    ranked = sorted(wanted, key=lambda part: -_weight(part[2]))
    for name, _, _ in ranked:
        language = name.strip().lower().partition("-")[0]
        if language in tables():
            return language
    return FIRST_LANGUAGE


def _weight(parameter: str) -> float:
    try:
        return float(parameter.partition("=")[2] or 1.0)
    except ValueError:
        return 0.0


def _flat(nested: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in nested.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": str(value)}
    return flat
