"""The left half of the Speak tab: recordings with their verdicts, samples, the library, consent, and saving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from backend.audio.quality import ReferenceReport
from backend.background_tasks import BackgroundTask
from backend.errors import EncoreError
from backend.voices.consent import SpokenProof
from backend.voices.samples import get_sample, list_samples
from backend.voices.voice import Voice
from ui.consent import Stated, sign
from ui.context import PageContext
from ui.events import HIDE, Update, bind, session_of
from ui.fields import FormIncomplete, build_consent
from ui.html.messages import NOTHING, cards, failure, heading, note, says, task_line
from ui.html.voices import saved_line
from ui.source import Reference, Source, VoiceFields, best_reference, delete_references
from ui.tabs.voice.examine import Examining
from ui.tabs.voice.render import VOICE_NOTE, listening, sample_card, saved_card
from ui.tabs.voice.spoken_consent import SpokenConsent
from ui.tabs.voice.transcript import TranscriptPart
from ui.web.temporary import unguessable_path

ALL_TOGETHER = "all"
SAMPLE_STATEMENT = "synthetic"
ACCEPT_SYNTHETIC = "Encore made this recording: clone it all the same"
MAX_TOGETHER_SECONDS = 60.0
"""A longer reference is slower, and the copy is no closer."""


class SourcePart:
    """Chooses whose voice speaks: `source` holds it, `references` the recordings that can be used."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        self.context = context
        gr.HTML(heading("1. The voice"), elem_classes=["step"])
        gr.HTML(note(VOICE_NOTE))
        with gr.Row():
            # Not gr.Audio, which refuses the MP4, WebM and 3GP files of phones. Any file may come: the decoder tells
            # by its content what it is, and says in plain words what is wrong with it.
            self.upload = gr.File(
                label="Upload recordings", file_count="multiple", height=170, min_width=200, elem_id="upload"
            )
            self.microphone = gr.Audio(
                label="Or record one",
                sources=["microphone"],
                type="filepath",  # and no `format`: nothing is converted on the way to the decoder
                buttons=[],
                min_width=200,
                elem_id="microphone",
            )
        samples = [(f"{sample.name.title()}: {sample.about}", sample.name) for sample in list_samples()]
        self.sample = gr.Radio(samples, label="Or use a sample voice", visible=bool(samples), elem_id="sample")
        self.saved = gr.Dropdown([], value=None, label="Or a voice from your library", elem_id="saved-voice")
        self.verdict = gr.HTML(NOTHING, elem_id="verdict")
        self.stop = gr.Button("Skip the others", visible=False, elem_id="stop-examining")
        self.pick = gr.Dropdown([], value=None, label="Clone from", visible=False, elem_id="pick")
        self.text = TranscriptPart(context)
        self.transcript = self.text.field
        self.statement, self.who = build_consent()
        self.spoken = SpokenConsent(context)
        self.accept = gr.Checkbox(label=ACCEPT_SYNTHETIC, value=False, visible=False, elem_id="accept-synthetic")
        with gr.Row(elem_classes=["choose"]):
            self.name = gr.Textbox(
                label="Name of the voice", max_length=64, scale=3, min_width=180, elem_id="voice-name"
            )
            self.save = gr.Button("Save to library", scale=2, min_width=150, elem_id="save-voice")
        self.references = gr.State([], delete_callback=delete_references)
        self.source, self.signed = gr.State(None), gr.State("")
        self.saved_note = gr.HTML(NOTHING, elem_id="saved-note")
        self.spoken.connect(self.source)
        self.text.connect(self.source)
        self._connect(tab)
        self._remember_who()

    @property
    def fields(self) -> VoiceFields:
        """What other tabs go on with."""
        return VoiceFields(
            references=self.references,
            source=self.source,
            transcript=self.transcript,
            statement=self.statement,
            who=self.who,
            proof=self.spoken.proof,
            signed=self.signed,
            name=self.name,
        )

    def _connect(self, tab: gr.Tab) -> None:
        given = {
            "files": self.upload,
            "recorded": self.microphone,
            "references": self.references,
            "source": self.source,
        }
        examined = [self.verdict, self.references, self.source, self.pick, self.sample, self.saved, self.statement]
        examined += [self.transcript, self.text.state]
        for component, api in ((self.upload, "examine"), (self.microphone, "examine_microphone")):
            bind(
                component.change,
                self._examine,
                given,
                [*examined, self.stop],
                api=api,
                concurrency_id="recordings",
                concurrency_limit=2,
                trigger_mode="always_last",
            )
        bind(self.stop.click, self._stop, api="stop_examining", quick=True)
        used = [self.source, self.verdict, self.transcript, self.text.state]
        sampled = [*used, self.statement, self.saved, self.pick]
        bind(self.sample.input, self._use_sample, {"name": self.sample}, sampled, api="use_sample")
        bind(
            self.saved.input,
            self._use_saved,
            {"voice_id": self.saved},
            [*used, self.sample, self.pick, self.statement],
            api="use_voice",
        )
        picking = {"picked": self.pick, "references": self.references, "source": self.source}
        picked = [self.source, self.transcript, self.text.state, self.statement]
        bind(self.pick.input, self._use_picked, picking, picked, api="use_picked")
        stated = {"source": self.source}
        bind(self.statement.input, lambda source: {self.signed: sign(source)}, stated, self.signed, api="state_consent")
        bind([tab.select, self.context.page.load], self._list_saved, None, self.saved, api="list_saved", quick=True)
        saving = {
            "name": self.name,
            "source": self.source,
            "transcript": self.transcript,
            "statement": self.statement,
            "who": self.who,
            "proof": self.spoken.proof,
            "signed": self.signed,
            "accepted": self.accept,
        }
        bind(self.source.change, self._ask_about, {"source": self.source}, self.accept, quick=True)
        bind(self.save.click, self._save, saving, [self.saved_note, self.saved], api="save_voice")

    def _remember_who(self) -> None:
        """Keep the name in the user's own browser. The key hides nothing there; without it each start has another."""
        remembered = gr.BrowserState("", storage_key="encore-who", secret="encore")
        # What was typed while the page was still being set up is newer than what is remembered.
        bind(
            self.context.page.load,
            lambda name, typed: {self.who: typed or name or ""},
            {"name": remembered, "typed": self.who},
            self.who,
            quick=True,
        )
        bind(self.who.blur, lambda name: {remembered: name}, {"name": self.who}, remembered, quick=True)

    def _examine(
        self,
        files: list[str] | None,
        recorded: str | None,
        references: list[Reference],
        source: Source | None,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Examine what was added, and say of each recording how good it is."""
        given = [Path(path) for path in [*(files or []), *([recorded] if recorded else [])]]
        known = {one.path: one for one in references}
        examining = Examining(self.context, f"examine {session_of(request)}", known)
        for said, may_stop in examining.run(given):
            yield {self.verdict: said, self.stop: gr.update(visible=may_stop)}
        best = best_reference(examining.fit)
        update: Update = {
            self.references: examining.fit,
            self.pick: _pick_update(examining.fit, best),
            self.stop: HIDE,
        }
        was_sample = source is not None and source.kind != "recording"
        if given or not was_sample:
            update[self.verdict] = cards(examining.cards)
            chosen = Source.of_reference(best) if best else None
            update |= {self.source: chosen, **self.text.cleared(source, chosen, request)}
        if given:
            update |= {self.sample: gr.update(value=None), self.saved: gr.update(value=None)}
        if self.source in update and _is_another(source, update[self.source]):
            # What was stated of one recording is not true of another.
            update[self.statement] = gr.update(value=None)
        yield update

    def _stop(self, request: gr.Request) -> None:
        self.context.background_tasks.cancel(f"examine {session_of(request)}")

    def _use_sample(self, name: str | None, request: gr.Request) -> Iterator[Update]:
        """Clone one of the voices that came with the program."""
        if name is None:
            return
        sample, studio = get_sample(name), self.context.studio
        cleared = self.text.cleared(None, None, request)
        yield {self.verdict: listening(sample.name.title(), 1, 1), **cleared, self.source: None}

        def examine(_: BackgroundTask[Any]) -> tuple[Path, ReferenceReport]:
            """Write the sample to a file, and check it as a recording is checked."""
            path = self.context.files.place(studio.sample_reference(name))
            assert path is not None, "it was just written"
            return path, studio.examine(path)

        path, report = yield from self.context.follow(
            f"sample {session_of(request)}",
            f"Listening to {sample.name.title()}",
            examine,
            lambda state: {self.verdict: task_line(state)},
        )
        title = f"Sample {sample.name.title()}"
        yield {
            self.source: Source(kind="sample", name=title, sample=name, reference=path, preview=path),
            self.verdict: sample_card(sample, report, path),
            self.transcript: sample.reference_text,
            self.statement: SAMPLE_STATEMENT,
            self.saved: gr.update(value=None),
            self.pick: HIDE,
        }

    def _use_saved(self, voice_id: str | None, request: gr.Request) -> Update:
        """Speak in a voice of the library."""
        if not voice_id:
            return {}
        voice = self.context.studio.voices.get(voice_id)
        preview = self.context.files.place(voice.reference) if voice.reference is not None else None
        return {
            self.source: Source(kind="voice", name=voice.name, voice_id=voice.id, preview=preview),
            self.verdict: saved_card(voice, preview),
            **self.text.cleared(None, None, request),
            self.transcript: voice.transcript or "",
            self.statement: gr.update(value=None),
            self.sample: gr.update(value=None),
            self.pick: HIDE,
        }

    def _use_picked(
        self, picked: str | None, references: list[Reference], source: Source | None, request: gr.Request
    ) -> Iterator[Update]:
        """Clone from one of the recordings that were given, or from all of them."""
        if picked == ALL_TOGETHER:
            together = unguessable_path(self.context.folder, "together.wav")
            previews = [reference.preview for reference in references]
            yield from self.context.follow(
                f"sample {session_of(request)}",
                "Joining the recordings",
                lambda _: self.context.studio.join_recordings(previews, together),
                # Until they are one, there is nothing to clone from.
                lambda _: {
                    self.source: None,
                    self.statement: gr.update(value=None),
                    **self.text.cleared(None, None, request),
                },
            )
            is_ours = any(reference.is_made_by_encore for reference in references)
            joined = Source(
                kind="recording",
                name="all recordings",
                reference=together,
                preview=together,
                made_by_encore=is_ours,
                made_of=tuple(reference.path for reference in references),
            )
            unsigned: Update = {self.statement: gr.update(value=None)}
            yield {self.source: joined, **unsigned, **self.text.cleared(source, joined, request)}
            return
        reference = next((reference for reference in references if str(reference.path) == picked), None)
        chosen = Source.of_reference(reference) if reference else None
        unsigned = {self.statement: gr.update(value=None)} if _is_another(source, chosen) else {}
        yield {self.source: chosen, **unsigned, **self.text.cleared(source, chosen, request)}

    def _ask_about(self, source: Source | None) -> Update:
        """Ask once more where Encore made the recording; never for another one with the same tick."""
        return {self.accept: gr.update(value=False, visible=source is not None and source.made_by_encore)}

    def _list_saved(self) -> Update:
        voices = reversed(self.context.studio.voices.list())
        return {self.saved: gr.update(choices=[(voice.name, voice.id) for voice in voices])}

    def _save(
        self,
        name: str,
        source: Source | None,
        transcript: str,
        statement: str | None,
        who: str,
        proof: SpokenProof | None,
        signed: str,
        accepted: bool,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Put the voice into the library, with its consent."""
        yield {self.saved_note: says("", "Saving …")}

        def save(_: BackgroundTask[Any]) -> Voice:
            """Add the voice to the library."""
            if source is not None and source.made_by_encore and not accepted:
                raise FormIncomplete(f"Encore made this recording. Tick “{ACCEPT_SYNTHETIC}”, or add another one.")
            return self.context.studio.save_voice(
                name,
                source.reference if source is not None and source.kind != "voice" else None,
                consent=Stated(statement=statement, who=who, proof=proof, source=source, signed=signed).read()
                if source is not None
                else None,
                transcript=transcript,
                origin=(source.sample or source.name) if source is not None else "",
                is_sample=source is not None and source.kind == "sample",
                accept_synthetic=accepted,
            )

        try:
            voice = yield from self.context.follow(
                f"save {session_of(request)}", "Saving", save, lambda state: {self.saved_note: task_line(state)}
            )
        except EncoreError as error:
            yield {self.saved_note: failure(error)}
            return
        yield {self.saved_note: saved_line(voice), **self._list_saved()}


def _is_another(before: Source | None, now: Source | None) -> bool:
    """Whether another recording is cloned from."""
    return (before.reference if before else None) != (now.reference if now else None)


def _pick_update(references: list[Reference], best: Reference | None) -> Any:
    """A choice only if there are several."""
    choices = [(f"{one.name} ({one.report.seconds:.1f} s)", str(one.path)) for one in references]
    if sum(one.report.seconds for one in references) <= MAX_TOGETHER_SECONDS:
        choices.append(("All of them, one after the other", ALL_TOGETHER))
    value = str(best.path) if best is not None else None
    return gr.update(choices=choices, value=value, visible=len(references) > 1)
