"""The one place where what went wrong becomes something Gradio shows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from html import escape
from typing import ParamSpec, TypeVar

import gradio as gr

from backend.errors import EncoreError

SHOWN_SECONDS = 15
"""Long enough to read two sentences and do what they say."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def shows_errors(handler: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let a handler raise EncoreError; the person reads its message, and the log stays clean."""

    @functools.wraps(handler)
    def shown(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return handler(*args, **kwargs)
        except EncoreError as error:
            raise to_shown(error) from error

    return shown


def stream_shows_errors(handler: Callable[Arguments, Iterator[Result]]) -> Callable[Arguments, Iterator[Result]]:
    """The same for a handler that yields."""

    @functools.wraps(handler)
    def shown(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        try:
            yield from handler(*args, **kwargs)
        except EncoreError as error:
            raise to_shown(error) from error

    return shown


def to_shown(error: EncoreError) -> gr.Error:
    """Gradio's form of an error: the message as it is.

    Escaped, because Gradio shows it as HTML, and names of files and models in it were chosen by whoever made them.
    """
    message = escape(str(error), quote=False)
    return gr.Error(message, duration=SHOWN_SECONDS, print_exception=False)
