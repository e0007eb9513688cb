"""Connecting events to handlers: the defaults that all of the page shares, and errors shown in one place.

A handler is given its inputs by name and returns the components that change: `{self.status: "Ready."}`. What it does
not name stays as it is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import gradio as gr
from gradio.blocks import Block, BlockContext
from gradio.components import Component
from gradio.context import LocalContext
from gradio.events import Dependency

from backend.errors import EncoreError
from ui.html.messages import NOTHING, failure, reason
from ui.words.words import spoken_to

SHOWN_SECONDS = 15
"""Long enough to read two sentences and do what they say."""

Update = dict[Block, Any]
"""New values, or `gr.update(...)`, of the components that change."""

Inputs = Mapping[str, Component | BlockContext]
"""Component that each parameter of a handler gets its value from."""

Trigger = Callable[..., Dependency]
"""An event of a component, such as `button.click`, or what follows one, such as `event.then`."""


class SaidInPlace(EncoreError):
    """Raised by a handler that has told the reason itself, beside what was pressed: no pop-up repeats it."""


HIDE = gr.update(visible=False)
SHOW = gr.update(visible=True)


def bind(
    trigger: Trigger | Sequence[Trigger],
    handler: Callable[..., Any],
    inputs: Inputs | None = None,
    outputs: Component | Sequence[Block] | None = None,
    *,
    api: str | None = None,
    quick: bool = False,
    **options: Any,
) -> Dependency:
    """Call `handler` when the event happens.

    Args:
        trigger: the event; of several, only the first can be called by programs.
        handler: a function or generator; an EncoreError it raises is shown to the user.
        inputs: where its parameters get their values from.
        outputs: all components that it may change; None for a handler that returns nothing.
        api: name under which programs (the tests) call it; without one it is private.
        quick: answered at once instead of waiting in the queue.
        options: further arguments of Gradio's event listeners.

    Returns:
        What may follow the first event: `then`, `success` or `failure`.
    """
    triggers = [trigger] if callable(trigger) else trigger
    shown = _showing_errors(handler)
    dependencies = [
        one(
            shown,
            None,
            [outputs] if isinstance(outputs, Component) else outputs,
            inputs_kwargs=dict(inputs or {}),
            queue=not quick,
            **{"show_progress": "hidden"} | options,
            # Gradio takes None for "named after the handler".
            **({"api_name": api, "api_visibility": "undocumented"} if api and not number else _PRIVATE),
        )
        for number, one in enumerate(triggers)
    ]
    return dependencies[0]


_PRIVATE = {"api_name": None, "api_visibility": "private"}


FOCUS_REFUSAL = """new MutationObserver(() => {
  const refusal = element.querySelector("[role=alert]");
  if (!refusal) return;
  refusal.tabIndex = -1;
  refusal.focus();
  refusal.scrollIntoView({ block: "nearest" });
}).observe(element, { childList: true, subtree: true });"""
"""For the element beside a button in which `answered_in` says why it did nothing: it is seen and read out."""


def answered_in(place: gr.HTML, act: Callable[..., Update]) -> Callable[..., Iterator[Update]]:
    """A handler whose refusals stand in `place`, beside the button that was pressed."""

    @functools.wraps(act)
    def answer(*args: Any, **kwargs: Any) -> Iterator[Update]:
        try:
            done = act(*args, **kwargs)
        except EncoreError as error:
            yield {place: failure(error)}
            raise SaidInPlace(str(error)) from error
        yield {place: NOTHING, **done}

    return answer


def session_of(request: gr.Request) -> str:
    """Key of the browser tab that an event comes from."""
    return str(request.session_hash)


def client_of(request: gr.Request) -> str:
    """Address that an event comes from: among several, the model is shared fairly between them."""
    return str(request.client.host) if request.client is not None else ""


def to_shown(error: EncoreError) -> gr.Error:
    """Gradio's form of an error: the message as it is, in the language of the browser that sent the event.

    Escaped, because Gradio shows it as HTML, and it may hold names of files and models.
    """
    with spoken_to(_accepted_languages()):
        message = escape(reason(error), quote=False)
    is_shown = not isinstance(error, SaidInPlace)
    return gr.Error(message, duration=SHOWN_SECONDS, visible=is_shown, print_exception=False)


_END: Any = object()


def _accepted_languages() -> str | None:
    """What the browser that sent the event would like to read; None for programs."""
    request = LocalContext.request.get(None)
    return request.headers.get("accept-language") if request is not None else None


def _showing_errors(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler, whose EncoreError becomes a message on the page while the log stays clean."""
    if inspect.isgeneratorfunction(handler):

        @functools.wraps(handler)
        def streamed(*args: Any, **kwargs: Any) -> Iterator[Any]:
            updates = handler(*args, **kwargs)
            has_said = False
            try:
                # Each step may run in another thread, which knows nothing of the language of the one before.
                while True:
                    with spoken_to(_accepted_languages()):
                        update = next(updates, _END)
                    if update is _END:
                        break
                    yield update or gr.skip()
                    has_said = True
                if not has_said:
                    # Gradio empties every output of a handler that ends without a word.
                    yield gr.skip()
            except EncoreError as error:
                raise to_shown(error) from error
            finally:
                updates.close()

        return streamed

    @functools.wraps(handler)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            with spoken_to(_accepted_languages()):
                update = handler(*args, **kwargs)
        except EncoreError as error:
            raise to_shown(error) from error
        # Gradio would take an empty dictionary for a value.
        return gr.skip() if update == {} else update

    return called
