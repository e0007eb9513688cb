"""The voice tab: a recording, its verdict, and the voice speaking any text at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import BlockContext

from backend.errors import RecordingError
from backend.serving.speech import LONGEST_TEXT
from backend.studio import LoadedModel, Studio
from ui import render
from ui.errors import shows_errors, stream_shows_errors
from ui.live_audio import build_live_player
from ui.reference import Reference, delete_reference
from ui.speaking import Outputs, Speaker, SpeakForm, delete_takes
from ui.takes import SessionTake
from ui.temporary import unguessable_path
from ui.workbench import Workbench

STOP_BUTTON_ID = "stop"
CONSENT = "This is my voice, or I have the speaker's permission to clone it"


@dataclass(frozen=True, kw_only=True)
class VoicePart:
    """Components about the recording."""

    upload: gr.File
    microphone: gr.Audio
    verdict: gr.HTML
    reference: gr.State
    transcript: gr.Textbox
    consent: gr.Checkbox


@dataclass(frozen=True, kw_only=True)
class SpeechPart:
    """Components about what is spoken; those in `waiting` do nothing without a model."""

    text: gr.Textbox
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


def build_voice_tab(bench: Workbench) -> tuple[VoicePart, SpeechPart]:
    """Lay the tab out and connect its events; returns its two halves."""
    with gr.Row(equal_height=False):
        with gr.Column(min_width=320):
            voice = _build_voice_part()
        with gr.Column(min_width=320):
            speech = _build_speech_part()
    gr.HTML("<h2>Takes</h2>", elem_classes=["step"])
    take_list = gr.HTML(render.take_list([]), elem_classes=["takes"], elem_id="takes")
    takes = gr.State([], delete_callback=delete_takes)
    _connect_voice(bench.studio, bench.folder, voice)
    speaker = Speaker(studio=bench.studio, flags=bench.flags, folder=bench.folder)
    _connect_speech(speaker, voice, speech, take_list, takes)
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


def _build_voice_part() -> VoicePart:
    gr.HTML("<h2>1. The voice</h2>", elem_classes=["step"])
    gr.HTML('<p class="note">Ten to thirty seconds of one person speaking clearly are ideal.</p>')
    with gr.Row():
        # Not gr.Audio, which refuses the MP4, WebM and 3GP files of phones. Any file may come: the decoder tells
        # by its content what it is, and says in plain words what is wrong with it.
        upload = gr.File(label="Upload a recording", height=170, min_width=200, elem_id="upload")
        microphone = gr.Audio(
            label="Or record one",
            sources=["microphone"],
            type="filepath",  # and no `format`: nothing is converted on the way to the decoder
            buttons=[],
            min_width=200,
            elem_id="microphone",
        )
    return VoicePart(
        upload=upload,
        microphone=microphone,
        verdict=gr.HTML(render.NOTHING, elem_id="verdict"),
        reference=gr.State(None, delete_callback=delete_reference),
        transcript=gr.Textbox(
            label="Transcript (optional)",
            info="What the recording says, word for word: makes a closer copy.",
            lines=2,
            max_length=5_000,
            elem_id="transcript",
        ),
        consent=gr.Checkbox(label=CONSENT, elem_id="consent"),
    )


def _build_speech_part() -> SpeechPart:
    gr.HTML("<h2>2. What it says</h2>", elem_classes=["step"])
    text = gr.Textbox(
        label="Text",
        placeholder="Write or paste what the voice should say.",
        lines=4,
        max_lines=12,
        max_length=LONGEST_TEXT,
        elem_id="text",
    )
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
    with gr.Accordion("Advanced", open=False):
        sampling = _build_sampling()
    with gr.Row():
        speak = gr.Button("Waiting for a model", variant="primary", interactive=False, elem_id="speak")
        stop = gr.Button("Stop", interactive=False, elem_id=STOP_BUTTON_ID)
    status = gr.HTML(render.NOTHING, elem_id="status")
    return SpeechPart(
        text=text,
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


def _connect_voice(studio: Studio, folder: Path, voice: VoicePart) -> None:
    def examine(given: str | None, other: str | None, before: Reference | None) -> tuple[str, Reference | None]:
        delete_reference(before)
        chosen = given or other
        if chosen is None:
            return render.NOTHING, None
        preview = unguessable_path(folder, "reference.wav")
        try:
            report = studio.examine(Path(chosen), preview)
        except RecordingError as error:
            # Not a pop-up: it belongs to the recording, and stays beside it.
            return render.refusal(str(error)), None
        return render.verdict(report, preview), Reference(path=Path(chosen), preview=preview)

    # Whichever was given last counts; when it is taken away, the other one does.
    upload, microphone = voice.upload, voice.microphone
    for given, other, name in ((upload, microphone, "examine"), (microphone, upload, "examine_microphone")):
        given.change(
            shows_errors(examine),
            [given, other, voice.reference],
            [voice.verdict, voice.reference],
            api_name=name,
            api_visibility="undocumented",
            concurrency_id="recordings",
            concurrency_limit=2,
            trigger_mode="always_last",
        )


def _connect_speech(
    speaker: Speaker, voice: VoicePart, speech: SpeechPart, take_list: gr.HTML, takes: gr.State
) -> None:
    def begin(request: gr.Request) -> str:
        speaker.flags.begin(str(request.session_hash))
        return render.says("", "Waiting for its turn …")

    def speak(session_takes: list[SessionTake], request: gr.Request, **fields: Any) -> Iterator[Outputs]:
        yield from speaker.speak(SpeakForm(**fields), session_takes, str(request.session_hash))

    def stop(request: gr.Request) -> None:
        speaker.flags.stop(str(request.session_hash))

    begun = speech.speak.click(
        begin, None, speech.status, queue=False, show_progress="hidden", api_visibility="private"
    )
    run = begun.then(
        stream_shows_errors(speak),
        takes,
        [speech.status, speech.player, take_list, takes],
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
        "reference": voice.reference,
        "transcript": voice.transcript,
        "has_consent": voice.consent,
        "text": speech.text,
        "language": speech.language,
        "seed": speech.seed,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
    }
