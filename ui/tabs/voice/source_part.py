"""The left half of the voice tab: recordings with their verdicts, samples, the library, consent, and saving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from backend.background_tasks import TaskState
from backend.errors import EncoreError
from backend.voices.consent import STATEMENTS, Consent, SpokenProof
from backend.voices.samples import list_samples
from backend.voices.voice import Voice
from ui.context import PageContext
from ui.errors import shows_errors, stream_shows_errors
from ui.html import base as render
from ui.live.follow import follow
from ui.source import Reference, Source, best_reference, delete_references
from ui.tabs.dataset import render as render_dataset
from ui.tabs.voice import render as render_source
from ui.tabs.voice.choose import ALL_TOGETHER, Choices, saved_choices
from ui.tabs.voice.examine import Examining
from ui.tabs.voice.speak import read_consent
from ui.tabs.voice.spoken_consent import SpokenConsent, build_spoken_consent, connect_spoken_consent, remember_who

MAX_TOGETHER_SECONDS = 60.0
"""More is no closer a copy, and slower."""


@dataclass(frozen=True, kw_only=True)
class VoicePart:
    """Its components; `references` and the consent are also what a dataset is made with."""

    upload: gr.File
    microphone: gr.Audio
    sample: gr.Radio
    saved: gr.Dropdown
    verdict: gr.HTML
    stop: gr.Button
    pick: gr.Dropdown
    references: gr.State
    source: gr.State
    transcript: gr.Textbox
    statement: gr.Radio
    who: gr.Textbox
    spoken: SpokenConsent
    name: gr.Textbox
    save: gr.Button
    saved_note: gr.HTML


def build_voice_part() -> VoicePart:
    """Lay it out."""
    gr.HTML("<h2>1. The voice</h2>", elem_classes=["step"])
    gr.HTML('<p class="note">Ten to thirty seconds of one person speaking clearly are ideal.</p>')
    with gr.Row():
        # Not gr.Audio, which refuses the MP4, WebM and 3GP files of phones. Any file may come: the decoder tells
        # by its content what it is, and says in plain words what is wrong with it.
        upload = gr.File(label="Upload recordings", file_count="multiple", height=170, min_width=200, elem_id="upload")
        microphone = gr.Audio(
            label="Or record one",
            sources=["microphone"],
            type="filepath",  # and no `format`: nothing is converted on the way to the decoder
            buttons=[],
            min_width=200,
            elem_id="microphone",
        )
    samples = [(f"{sample.name.title()}: {sample.about}", sample.name) for sample in list_samples()]
    sample = gr.Radio(samples, label="Or use a sample voice", visible=bool(samples), elem_id="sample")
    saved = gr.Dropdown([], value=None, label="Or a voice of your library", elem_id="saved-voice")
    verdict = gr.HTML(render.NOTHING, elem_id="verdict")
    stop = gr.Button("Leave the others out", visible=False, elem_id="stop-examining")
    pick = gr.Dropdown([], value=None, label="Clone from", visible=False, elem_id="pick")
    transcript = gr.Textbox(
        label="Transcript (optional)",
        info="What the recording says, word for word: makes a closer copy.",
        lines=2,
        max_length=5_000,
        elem_id="transcript",
    )
    statement = gr.Radio(
        [(words, kind) for kind, words in STATEMENTS.items()],
        label="Consent",
        info="A voice is cloned only with the consent of whoever speaks. It is stored with the voice.",
        elem_id="consent",
    )
    who = gr.Textbox(label="Your name, for the consent", max_length=200, elem_id="who")
    spoken = build_spoken_consent()
    with gr.Row(elem_classes=["choose"]):
        name = gr.Textbox(label="Name of the voice", max_length=64, scale=3, min_width=180, elem_id="voice-name")
        save = gr.Button("Save to library", scale=2, min_width=150, elem_id="save-voice")
    return VoicePart(
        upload=upload,
        microphone=microphone,
        sample=sample,
        saved=saved,
        verdict=verdict,
        stop=stop,
        pick=pick,
        references=gr.State([], delete_callback=delete_references),
        source=gr.State(None),
        transcript=transcript,
        statement=statement,
        who=who,
        spoken=spoken,
        name=name,
        save=save,
        saved_note=gr.HTML(render.NOTHING, elem_id="saved-note"),
    )


def connect_voice_part(context: PageContext, part: VoicePart, tab: gr.Tab) -> None:
    """Make it work."""
    _connect_recordings(context, part)
    _connect_choices(context, part, tab)
    _connect_saving(context, part)
    connect_spoken_consent(context, part.spoken, part.source)
    remember_who(context, part.who)


def _connect_recordings(context: PageContext, part: VoicePart) -> None:
    def examine(
        files: list[str] | None,
        recorded: str | None,
        before: list[Reference],
        source: Source | None,
        request: gr.Request,
    ) -> Iterator[list[Any]]:
        """Hear what was given anew, and say of each recording how good it is."""
        given = [Path(path) for path in [*(files or []), *([recorded] if recorded else [])]]
        examining = Examining(context, f"examine {request.session_hash}", {one.path: one for one in before})
        for said, may_stop in examining.run(given):
            yield [said, *[gr.skip()] * 6, gr.update(visible=may_stop)]
        fit = examining.fit
        best = best_reference(fit)
        was_sample = source is not None and source.kind != "recording"
        yield [
            gr.skip() if was_sample and not given else render.cards(examining.cards),
            fit,
            Source.of_reference(best) if best else (source if was_sample and not given else None),
            _pick_update(fit, best),
            gr.update(value=None) if given else gr.skip(),
            gr.update(value=None) if given else gr.skip(),
            # What was said about a sample is not true of a recording.
            gr.update(value=None) if given and was_sample else gr.skip(),
            gr.update(visible=False),
        ]

    def stop(request: gr.Request) -> None:
        context.background_tasks.cancel(f"examine {request.session_hash}")

    for component, name in ((part.upload, "examine"), (part.microphone, "examine_microphone")):
        component.change(
            stream_shows_errors(examine),
            [part.upload, part.microphone, part.references, part.source],
            [part.verdict, part.references, part.source, part.pick, part.sample, part.saved, part.statement, part.stop],
            api_name=name,
            api_visibility="undocumented",
            concurrency_id="recordings",
            concurrency_limit=2,
            trigger_mode="always_last",
            show_progress="hidden",
        )
    part.stop.click(stop, None, None, queue=False, api_name="stop_examining", api_visibility="undocumented")


def _connect_choices(context: PageContext, part: VoicePart, tab: gr.Tab) -> None:
    choices = Choices(context)
    part.sample.input(
        stream_shows_errors(choices.use_sample),
        part.sample,
        [part.source, part.verdict, part.transcript, part.statement, part.saved, part.pick],
        api_name="use_sample",
        api_visibility="undocumented",
    )
    part.saved.input(
        shows_errors(choices.use_saved),
        part.saved,
        [part.source, part.verdict, part.transcript, part.sample, part.pick],
        api_name="use_voice",
        api_visibility="undocumented",
    )
    part.pick.input(
        stream_shows_errors(choices.use_picked), [part.pick, part.references], part.source, api_visibility="private"
    )
    for event in (context.page.load, tab.select):
        event(
            shows_errors(lambda: gr.update(choices=saved_choices(context))),
            None,
            part.saved,
            queue=False,
            show_progress="hidden",
            api_name="list_saved" if event == tab.select else None,
            api_visibility="undocumented" if event == tab.select else "private",
        )


def _connect_saving(context: PageContext, part: VoicePart) -> None:
    def save(
        name: str,
        source: Source | None,
        transcript: str,
        statement: str | None,
        who: str,
        proof: SpokenProof | None,
        request: gr.Request,
    ) -> Iterator[list[Any]]:
        """Put the voice into the library, with its consent."""
        yield [render.says("", "Saving …"), gr.skip()]

        def show(state: TaskState) -> list[Any]:
            return [render_dataset.task_line(state), gr.skip()]

        try:
            consent = read_consent(statement, who, proof, source) if source else None
            voice = yield from follow(
                context.background_tasks,
                f"save {request.session_hash}",
                "Saving",
                lambda _: _save(context, name, source, transcript, consent),
                show,
            )
        except EncoreError as error:
            yield [render.says("bad", render.escaped(str(error)), role="alert"), gr.skip()]
            return
        yield [render_source.saved_line(voice), gr.update(choices=saved_choices(context))]

    part.save.click(
        stream_shows_errors(save),
        [part.name, part.source, part.transcript, part.statement, part.who, part.spoken.proof],
        [part.saved_note, part.saved],
        api_name="save_voice",
        api_visibility="undocumented",
        show_progress="hidden",
    )


def _save(context: PageContext, name: str, source: Source | None, transcript: str, consent: Consent | None) -> Voice:
    return context.studio.save_voice(
        name,
        source.reference if source is not None and source.kind != "voice" else None,
        consent=consent,
        transcript=transcript,
        origin=(source.sample or source.name) if source is not None else "",
        is_sample=source is not None and source.kind == "sample",
    )


def _pick_update(references: list[Reference], best: Reference | None) -> Any:
    """A choice only where there is one."""
    choices = [(f"{one.name} ({one.report.seconds:.1f} s)", str(one.path)) for one in references]
    if sum(one.report.seconds for one in references) <= MAX_TOGETHER_SECONDS:
        choices.append(("All of them, one after the other", ALL_TOGETHER))
    value = str(best.path) if best is not None else None
    return gr.update(choices=choices, value=value, visible=len(references) > 1)
