"""Consent said aloud: a phrase nobody can have on tape, spoken by the voice that is to be cloned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from backend.errors import EncoreError
from backend.voices.phrase_words import draw_phrase
from ui.context import PageContext
from ui.errors import stream_shows_errors
from ui.html import base as render
from ui.live.follow import follow
from ui.source import Source
from ui.tabs.dataset import render as render_dataset
from ui.tabs.voice import render as render_source


@dataclass(frozen=True, kw_only=True)
class SpokenConsent:
    """Its components; `proof` is None until the phrase was heard."""

    ask: gr.Button
    phrase: gr.State
    shown: gr.HTML
    microphone: gr.Audio
    check: gr.Button
    stop: gr.Button
    result: gr.HTML
    proof: gr.State


def build_spoken_consent() -> SpokenConsent:
    """Lay it out, folded away."""
    with gr.Accordion("Say the consent aloud (optional)", open=False, elem_id="spoken-consent"):
        gr.HTML(
            '<p class="note">A random sentence, read by the speaker, shows that the person is here and agrees. '
            "Speech recognition on this machine listens.</p>"
        )
        ask = gr.Button("Show me the sentence", elem_id="draw-phrase")
        shown = gr.HTML(render.NOTHING, elem_id="phrase")
        microphone = gr.Audio(
            label="Read it aloud", sources=["microphone", "upload"], type="filepath", buttons=[], elem_id="spoken"
        )
        with gr.Row():
            check = gr.Button("Listen to it", elem_id="check-phrase")
            stop = gr.Button("Cancel", visible=False, elem_id="stop-phrase")
        result = gr.HTML(render.NOTHING, elem_id="spoken-result")
    return SpokenConsent(
        ask=ask,
        phrase=gr.State(""),
        shown=shown,
        microphone=microphone,
        check=check,
        stop=stop,
        result=result,
        proof=gr.State(None),
    )


def connect_spoken_consent(context: PageContext, spoken: SpokenConsent, source: gr.State) -> None:
    """Make it work; a proof belongs to the source it was heard with, and ends with it."""

    def listen(phrase: str, recorded: str | None, chosen: Source | None, request: gr.Request) -> Iterator[list[Any]]:
        """Hear the recording, and say what was heard."""
        return _listen(context, phrase, recorded, chosen, request)

    def stop_listening(request: gr.Request) -> None:
        context.background_tasks.cancel(f"phrase {request.session_hash}")

    spoken.stop.click(stop_listening, None, None, queue=False, api_visibility="private")
    spoken.ask.click(
        _draw,
        None,
        [spoken.phrase, spoken.shown, spoken.microphone, spoken.proof, spoken.result],
        queue=False,
        api_name="draw_phrase",
        api_visibility="undocumented",
    )
    spoken.check.click(
        stream_shows_errors(listen),
        [spoken.phrase, spoken.microphone, source],
        [spoken.result, spoken.proof, spoken.stop],
        api_name="check_phrase",
        api_visibility="undocumented",
        show_progress="hidden",
    )
    source.change(
        lambda: [None, render.NOTHING], None, [spoken.proof, spoken.result], queue=False, api_visibility="private"
    )


def _draw() -> list[Any]:
    """Another phrase; a recording of the one before is no proof of it."""
    phrase = draw_phrase()
    return [phrase, render_source.phrase_card(phrase), None, None, render.NOTHING]


def _listen(
    context: PageContext, phrase: str, recorded: str | None, chosen: Source | None, request: gr.Request
) -> Iterator[list[Any]]:
    """What is said of the recording, the proof, and whether one can stop, until it was heard."""
    yield [render.says("", "Listening …"), None, gr.skip()]
    problem = _missing(context, phrase, recorded, chosen)
    if problem:
        yield [render.says("mixed", problem), None, gr.skip()]
        return
    assert recorded is not None
    assert chosen is not None
    reference, loaded = chosen.preview, context.studio.loaded
    assert reference is not None
    assert loaded is not None
    try:
        proof = yield from follow(
            context.background_tasks,
            f"phrase {request.session_hash}",
            "Listening",
            lambda _: context.studio.prove_consent(loaded, phrase, Path(recorded), reference),
            lambda state: [render_dataset.task_line(state), None, gr.update(visible=True)],
        )
    except EncoreError as error:
        yield [render.says("bad", render.escaped(str(error)), role="alert"), None, gr.update(visible=False)]
        return
    heard = render.escaped(proof.heard)
    yield [
        render.says("good", f"<strong>Heard and recognised:</strong> “{heard}”"),
        proof,
        gr.update(visible=False),
    ]


def remember_who(context: PageContext, who: gr.Textbox) -> None:
    """Keep the name in the person's own browser. The key hides nothing there; without it each start has another."""
    remembered = gr.BrowserState("", storage_key="encore-who", secret="encore")
    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    # What was typed while the page was still being set up is newer than what is remembered.
    context.page.load(lambda name, typed: typed or name or "", [remembered, who], who, **quiet)
    who.blur(lambda name: name, who, remembered, **quiet)


def _missing(context: PageContext, phrase: str, recorded: str | None, chosen: Source | None) -> str:
    """What is to be done before anything can be listened to; empty when nothing is."""
    if chosen is None or chosen.preview is None:
        return "Add a recording of the voice first: the phrase is compared with it."
    if not phrase:
        return "Ask for the sentence first, then read it aloud."
    if recorded is None:
        return "Record the sentence first."
    if context.studio.loaded is None:
        return "No model is loaded yet; it compares the two voices. Load one at the top of the page."
    return ""
