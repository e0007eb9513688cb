"""The voice tab: a recording, its verdict, and the voice speaking any text at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import BlockContext

from backend.serving.speech.speech import MAX_TEXT_LENGTH
from backend.studio import LoadedModel
from ui.context import PageContext
from ui.errors import stream_shows_errors
from ui.html import base as render
from ui.live.live_audio import build_live_player
from ui.tabs.voice.source_part import VoicePart, build_voice_part, connect_voice_part
from ui.tabs.voice.speak import Outputs, Speaker, SpeakForm
from ui.tabs.voice.takes import KeptTakes, build_take_list, connect_take_list

STOP_BUTTON_ID = "stop"
FIRST_TEXT = "Hello! This is what I sound like when a machine has listened to me for a few seconds."
WAYS = [
    ("Closest: with the transcript where there is one", "auto"),
    ("In context: continues the recording", "in-context"),
    ("From the sound alone (x-vector)", "x-vector"),
]


@dataclass(frozen=True, kw_only=True)
class SpeechPart:
    """Components about what is spoken; those in `waiting` do nothing without a model."""

    text: gr.Textbox
    way: gr.Radio
    language: gr.Dropdown
    seed: gr.Textbox
    sampling: tuple[gr.Slider, gr.Slider, gr.Slider, gr.Slider]
    speak: gr.Button
    stop: gr.Button
    status: gr.HTML
    player: gr.HTML

    @property
    def waiting(self) -> list[gr.components.Component]:
        """What `model_updates` gives values for, in this order."""
        return [self.speak, self.stop, self.language, self.seed, *self.sampling]


def build_voice_tab(context: PageContext, tab: gr.Tab) -> tuple[VoicePart, SpeechPart]:
    """Lay the tab out and connect its events; returns its two halves."""
    with gr.Row(equal_height=False):
        with gr.Column(min_width=320):
            voice = build_voice_part()
        with gr.Column(min_width=320):
            speech = _build_speech_part()
            gr.HTML("<h2>Takes</h2>", elem_classes=["step"])
            take_list = build_take_list()
    browser = connect_take_list(context, take_list)
    connect_voice_part(context, voice, tab)
    speaker = Speaker(
        studio=context.studio, flags=context.flags, kept=KeptTakes(context), background_tasks=context.background_tasks
    )
    _connect_speech(speaker, voice, speech, take_list, browser)
    return voice, speech


def model_updates(loaded: LoadedModel | None) -> list[Any]:
    """Updates for `SpeechPart.waiting`: open, with the checkpoint's own values, or closed and saying why."""
    if loaded is None:
        closed = gr.update(interactive=False)
        return [gr.update(value="Waiting for a model", interactive=False), *[closed] * 7]
    sampling = loaded.model.default_sampling
    values = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.repetition_penalty)
    languages = [("Automatic", "auto"), *((name.title(), name) for name in loaded.model.config.languages)]
    return [
        gr.update(value="Speak", interactive=True),
        gr.update(interactive=True),
        gr.update(choices=languages, value="auto", interactive=True),
        gr.update(interactive=True),
        *(gr.update(value=value, interactive=True) for value in values),
    ]


def _build_speech_part() -> SpeechPart:
    gr.HTML("<h2>2. What it says</h2>", elem_classes=["step"])
    text = gr.Textbox(
        label="Text",
        value=FIRST_TEXT,
        placeholder="Write or paste what the voice should say.",
        lines=4,
        max_lines=12,
        max_length=MAX_TEXT_LENGTH,
        elem_id="text",
    )
    way = gr.Radio(WAYS, value="auto", label="How to clone", elem_id="way")
    with gr.Row():
        language = gr.Dropdown([("Automatic", "auto")], value="auto", label="Language", interactive=False)
        # Not gr.Number, which turns an empty field into 0.
        seed = gr.Textbox(
            label="Seed (optional)",
            placeholder="random",
            max_length=19,
            interactive=False,
            elem_id="seed",
        )
    with gr.Accordion("Advanced sampling", open=False):
        sampling = _build_sampling()
    with gr.Row():
        speak = gr.Button("Waiting for a model", variant="primary", interactive=False, elem_id="speak")
        stop = gr.Button("Stop", interactive=False, elem_id=STOP_BUTTON_ID)
    status = gr.HTML(render.NOTHING, elem_id="status")
    return SpeechPart(
        text=text,
        way=way,
        language=language,
        seed=seed,
        sampling=sampling,
        speak=speak,
        stop=stop,
        status=status,
        player=build_live_player(STOP_BUTTON_ID),
    )


def _build_sampling() -> tuple[gr.Slider, gr.Slider, gr.Slider, gr.Slider]:
    return (
        gr.Slider(0, 2, 0.9, step=0.05, label="Temperature", info="Lower is steadier, higher livelier."),
        gr.Slider(0, 500, 50, step=1, label="Top-k", info="Draw among this many; 0 means all."),
        gr.Slider(0.05, 1, 1, step=0.05, label="Top-p", info="Leave out the unlikeliest; 1 leaves none out."),
        gr.Slider(0.8, 2, 1.05, step=0.05, label="Repetition penalty", info="Above 1 it avoids repeating itself."),
    )


def _connect_speech(
    speaker: Speaker, voice: VoicePart, speech: SpeechPart, take_list: gr.HTML, browser: gr.State
) -> None:
    def begin(request: gr.Request) -> str:
        speaker.flags.begin(str(request.session_hash))
        return render.says("", "Waiting for its turn …")

    def speak(name: str, request: gr.Request, **fields: Any) -> Iterator[Outputs]:
        """Speak in the list of takes that belongs to this browser."""
        visit = str(request.session_hash)
        # A program that drives the page has no browser; its list ends with the visit.
        yield from speaker.speak(SpeakForm(**fields), name or f"visit {visit}", visit)

    def stop(request: gr.Request) -> None:
        speaker.flags.stop(str(request.session_hash))

    begun = speech.speak.click(
        begin, None, speech.status, queue=False, show_progress="hidden", api_visibility="private"
    )
    run = begun.then(
        stream_shows_errors(speak),
        browser,
        [speech.status, speech.player, take_list],
        api_name="speak",
        api_visibility="undocumented",
        concurrency_id="model",
        concurrency_limit=1,
        show_progress="hidden",
        inputs_kwargs=_form_fields(voice, speech),
    )
    run.failure(lambda: render.NOTHING, None, speech.status, queue=False, api_visibility="private")
    speech.stop.click(stop, None, None, queue=False, api_name="stop", api_visibility="undocumented")


def _form_fields(voice: VoicePart, speech: SpeechPart) -> dict[str, gr.components.Component | BlockContext]:
    """Which component each field of `SpeakForm` comes from."""
    temperature, top_k, top_p, repetition_penalty = speech.sampling
    return {
        "source": voice.source,
        "transcript": voice.transcript,
        "statement": voice.statement,
        "who": voice.who,
        "proof": voice.spoken.proof,
        "text": speech.text,
        "way": speech.way,
        "language": speech.language,
        "seed": speech.seed,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
    }
