"""Binding events: names of inputs, components that change, and errors in words that cannot be markup."""

from __future__ import annotations

import gradio as gr
import pytest
from gradio.context import LocalContext

from backend.errors import EncoreError
from ui.events import bind


def bound(handler, *, inputs=(), **options):
    """What Gradio calls, and how it is registered."""
    with gr.Blocks() as page:
        fields = {name: gr.Textbox() for name in inputs}
        button, outputs = gr.Button(), [gr.HTML(), gr.HTML()]
        bind([button.click, page.load], handler, fields, outputs, **options)
    return list(page.fns.values())


def test_errors_of_ours_are_shown_as_they_are_but_never_as_markup():
    def fail():
        raise EncoreError("<img src=x> isn't a voice")

    def fail_later():
        yield {"status": 1}
        fail()

    called, *_ = bound(fail)
    with pytest.raises(gr.Error) as caught:
        called.fn()
    assert caught.value.message == "&lt;img src=x&gt; isn't a voice"
    streamed, *_ = bound(fail_later)
    stream = streamed.fn()
    assert next(stream) == {"status": 1}
    with pytest.raises(gr.Error):
        next(stream)


@pytest.mark.parametrize(
    ("accepted", "shown"),
    [
        ("de-AT,en;q=0.5", "Eine Stimme braucht eine Aufnahme, nach der sie geklont wird. Füge eine hinzu."),
        ("fr", "A voice needs a recording to be cloned from. Add one."),
    ],
)
def test_an_error_is_shown_in_the_language_of_the_browser(accepted, shown):
    def fail():
        raise EncoreError("A voice needs a recording to be cloned from. Add one.")

    def fail_later():
        yield {"status": 1}
        fail()

    asked = LocalContext.request.set(gr.Request(headers={"accept-language": accepted}))
    try:
        for handler in (fail, fail_later):
            called, *_ = bound(handler)
            with pytest.raises(gr.Error) as caught:
                list(called.fn() or ())
            assert caught.value.message == shown
    finally:
        LocalContext.request.reset(asked)


def test_faults_of_ours_are_not_dressed_up():
    def fail():
        raise ZeroDivisionError

    called, *_ = bound(fail)
    with pytest.raises(ZeroDivisionError):
        called.fn()


def test_inputs_have_the_names_of_parameters_and_only_the_first_event_is_for_programs():
    first, second = bound(lambda text, seed: None, inputs=("text", "seed"), api="speak", quick=True)
    assert first.input_parameter_names == ["text", "seed"]
    assert [(one.api_name, one.api_visibility, one.queue) for one in (first, second)] == [
        ("speak", "undocumented", False),
        (second.api_name, "private", False),
    ]


def test_what_is_not_named_stays_as_it_is():
    called, *_ = bound(dict)
    assert called.fn() == gr.skip()


def test_a_generator_that_ends_without_a_word_leaves_the_page_as_it_is():
    streamed, *_ = bound(lambda: (yield from ()))
    assert list(streamed.fn()) == [gr.skip()]
