"""The left half of the Speak tab: recordings with their verdicts, samples, the library, consent, and saving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from backend.background_tasks import BackgroundTask
from backend.errors import EncoreError
from backend.voices.consent import SpokenProof
from backend.voices.samples import get_sample
from backend.voices.voice import Voice
from ui.consent import Stated, is_signed, sign
from ui.context import PageContext
from ui.events import HIDE, Update, bind, session_of
from ui.fields import FormIncomplete, build_consent, build_note, build_title, build_words
from ui.html.messages import NOTHING, cards, failure, says, task_line
from ui.html.voices import saved_line
from ui.source import Reference, Source, VoiceFields, best_reference, delete_references
from ui.tabs.voice.examine import Examining
from ui.tabs.voice.rail import rail_html
from ui.tabs.voice.render import line_to_read, sample_card, saved_card
from ui.tabs.voice.spoken_consent import SpokenConsent
from ui.tabs.voice.transcript import TranscriptPart
from ui.web.temporary import unguessable_path
from ui.words.words import say, word

RAIL_SCRIPT = Path(__file__).with_name("rail.js")
UNSAVED_SCRIPT = Path(__file__).with_name("unsaved.js")
RECORD_MARK_SCRIPT = Path(__file__).with_name("record_mark.js")

ALL_TOGETHER = "all"
SAMPLE_STATEMENT = "synthetic"
MAX_TOGETHER_SECONDS = 60.0
"""A longer reference is slower, and the copy is no closer."""


class SourcePart:
    """Chooses whose voice speaks: `source` holds it, `references` the recordings that can be used."""

    def __init__(self, context: PageContext, tab: gr.Tab) -> None:
        self.context = context
        with gr.Column(elem_id="rail-column"):
            self.rail = gr.HTML(
                NOTHING, elem_id="rail", js_on_load=RAIL_SCRIPT.read_text("utf-8"), apply_default_css=False
            )
            self.about = gr.HTML(NOTHING, elem_id="voice-about")
            # Which card was pressed; `rail.js` writes it there.
            self.sample = gr.Textbox(show_label=False, elem_id="sample", elem_classes=["unseen"])
            self.saved = gr.Textbox(show_label=False, elem_id="saved-voice", elem_classes=["unseen"])
        with gr.Column(elem_id="new-voice"):
            self._build_steps()
        self.references = gr.State([], delete_callback=delete_references)
        self.source, self.signed = gr.State(None), gr.State("")
        self.spoken.connect(self.source)
        self.text.connect(self.source)
        self._connect(tab)
        self._remember_who()

    def _build_steps(self) -> None:
        """The three steps to a new voice."""
        with gr.Column(elem_classes=["step-card"], min_width=240):
            build_title("speak.step_give")
            # Not gr.Audio, which refuses the MP4, WebM and 3GP files of phones. Any file may come: the decoder tells
            # by its content what it is, and says in plain words what is wrong with it.
            self.upload = gr.File(
                label=word("speak.upload"), file_count="multiple", height=132, min_width=200, elem_id="upload"
            )
            build_words(line_to_read())
            self.microphone = gr.Audio(
                label=word("speak.record"),
                sources=["microphone"],
                type="filepath",  # and no `format`: nothing is converted on the way to the decoder
                buttons=[],
                min_width=200,
                elem_id="microphone",
            )
            gr.HTML(
                '<div class="record-mark" hidden><i></i><span></span></div>',
                elem_id="record-mark",
                js_on_load=RECORD_MARK_SCRIPT.read_text("utf-8"),
                apply_default_css=False,
            )
            build_note("speak.ideal")
        with gr.Column(elem_classes=["step-card"], min_width=240):
            build_title("speak.step_hear")
            self.verdict = gr.HTML(NOTHING, elem_id="verdict")
            self.stop = gr.Button(word("speak.skip"), visible=False, elem_id="stop-examining")
            self.pick = gr.Dropdown([], value=None, label=word("speak.clone_from"), visible=False, elem_id="pick")
            self.text = TranscriptPart(self.context)
            self.transcript = self.text.field
        with gr.Column(elem_classes=["step-card"], min_width=240):
            build_title("speak.step_agree")
            self.statement, self.who = build_consent(self.context)
            self.spoken = SpokenConsent(self.context)
            self.accept = gr.Checkbox(
                label=word("speak.accept_synthetic"), value=False, visible=False, elem_id="accept-synthetic"
            )
            self.name = gr.Textbox(label=word("speak.name"), max_length=64, elem_id="voice-name")
            with gr.Row():
                self.save = gr.Button(word("speak.save"), min_width=120, elem_id="save-voice")
                gr.Button(word("speak.done"), min_width=80, elem_id="voice-done")
            # A new voice lives with the page until it is saved; the script has the browser ask before that goes.
            self.saved_note = gr.HTML(
                NOTHING, elem_id="saved-note", js_on_load=UNSAVED_SCRIPT.read_text(encoding="utf-8")
            )

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
        examined = [self.verdict, self.about, self.references, self.source, self.pick]
        examined += [self.transcript, self.text.state]
        reviewed = {"source": self.source, "signed": self.signed}
        for component, api in ((self.upload, "examine"), (self.microphone, "examine_microphone")):
            ended = bind(
                component.change,
                self._examine,
                given,
                [*examined, self.stop],
                api=api,
                concurrency_id="recordings",
                concurrency_limit=2,
                trigger_mode="always_last",
            )
            # A step of its own, because the consent may have been stated while the recording was examined.
            named = "review_statement" if component is self.upload else None
            bind(ended.then, self._review_statement, reviewed, self.statement, api=named, quick=True)
        bind(self.stop.click, self._stop, api="stop_examining", quick=True)
        bind(self.sample.change, self._use_sample, {"name": self.sample}, self.chosen, api="use_sample")
        bind(
            self.saved.change,
            self._use_saved,
            {"voice_id": self.saved},
            self.chosen,
            api="use_voice",
        )
        picking = {"picked": self.pick, "references": self.references, "source": self.source, "signed": self.signed}
        picked = [self.source, self.transcript, self.text.state, self.statement]
        bind(self.pick.input, self._use_picked, picking, picked, api="use_picked")
        stated = {key: given[key] for key in ("files", "recorded", "references", "source")}
        bind(self.statement.input, self._sign, stated, self.signed, api="state_consent")
        listing = [tab.select, self.context.page.load, self.source.change]
        bind(listing, self._list_voices, {"source": self.source}, self.rail, api="list_saved", quick=True)
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
        bind(self.save.click, self._save, saving, [self.saved_note, self.rail], api="save_voice")

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
        given = _added(files, recorded)
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
            update[self.about] = NOTHING
        yield update

    def _sign(
        self, files: list[str] | None, recorded: str | None, references: list[Reference], source: Source | None
    ) -> Update:
        return {self.signed: sign(source, references, _added(files, recorded))}

    def _review_statement(self, source: Source | None, signed: str) -> Update:
        """Take a statement back that was not made for what was examined."""
        is_of_recording = source is None or source.kind == "recording"
        return {self.statement: gr.update(value=None)} if is_of_recording and not is_signed(signed, source) else {}

    def _unsigned(self, before: Source | None, now: Source | None, signed: str) -> Update:
        """Take a statement back that was not made for what is cloned now."""
        is_another = (before.reference if before else None) != (now.reference if now else None)
        return {self.statement: gr.update(value=None)} if is_another and not is_signed(signed, now) else {}

    def _stop(self, request: gr.Request) -> None:
        self.context.background_tasks.cancel(f"examine {session_of(request)}")

    @property
    def chosen(self) -> list[Component]:
        """What `use` changes."""
        used = [self.source, self.about, self.verdict, self.transcript, self.text.state, self.pick]
        return [*used, self.statement]

    def use(self, kind: str, key: str, request: gr.Request) -> Update:
        """Choose a sample or a voice of the library. Raises EncoreError if it is gone."""
        if kind == "sample":
            return self._use_sample(key, request)
        return self._use_saved(key, request) if kind == "voice" else {}

    def _use_sample(self, name: str | None, request: gr.Request) -> Update:
        """Clone one of the voices that came with the program."""
        name = (name or "").strip()
        if not name:
            return {}
        sample, path = get_sample(name), self.context.files.place(self.context.studio.sample_reference(name))
        assert path is not None, "it was just written"
        title = say("speak.sample_name", name=sample.name.title())
        return {
            self.source: Source(kind="sample", name=title, sample=name, reference=path, preview=path),
            self.about: sample_card(sample),
            self.verdict: NOTHING,
            **self.text.cleared(None, None, request),
            self.transcript: sample.reference_text,
            self.statement: SAMPLE_STATEMENT,
            self.pick: HIDE,
        }

    def _use_saved(self, voice_id: str | None, request: gr.Request) -> Update:
        """Speak in a voice of the library."""
        if not voice_id:
            return {}
        voice = self.context.studio.voices.get(voice_id.strip())
        preview = self.context.files.place(voice.reference) if voice.reference is not None else None
        return {
            self.source: Source.of_voice(voice, preview),
            self.about: saved_card(voice),
            self.verdict: NOTHING,
            **self.text.cleared(None, None, request),
            self.transcript: voice.transcript or "",
            self.statement: gr.update(value=None),
            self.pick: HIDE,
        }

    def _use_picked(
        self,
        picked: str | None,
        references: list[Reference],
        source: Source | None,
        signed: str,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Clone from one of the recordings that were given, or from all of them."""
        if picked == ALL_TOGETHER:
            together = unguessable_path(self.context.folder, "together.wav")
            previews = [reference.preview for reference in references]
            yield from self.context.follow(
                f"sample {session_of(request)}",
                say("speak.joining"),
                lambda _: self.context.studio.join_recordings(previews, together),
                # Until they are one, there is nothing to clone from.
                lambda _: {self.source: None, **self.text.cleared(None, None, request)},
            )
            is_ours = any(reference.is_made_by_encore for reference in references)
            joined = Source(
                kind="recording",
                name=say("speak.all_recordings"),
                reference=together,
                preview=together,
                made_by_encore=is_ours,
                made_of=tuple(reference.path for reference in references),
            )
            unsigned = self._unsigned(source, joined, signed)
            yield {self.source: joined, **unsigned, **self.text.cleared(source, joined, request)}
            return
        reference = next((reference for reference in references if str(reference.path) == picked), None)
        chosen = Source.of_reference(reference) if reference else None
        unsigned = self._unsigned(source, chosen, signed)
        yield {self.source: chosen, **unsigned, **self.text.cleared(source, chosen, request)}

    def _ask_about(self, source: Source | None) -> Update:
        """Ask once more where Encore made the recording; never for another one with the same tick."""
        return {self.accept: gr.update(value=False, visible=source is not None and source.made_by_encore)}

    def _list_voices(self, source: Source | None) -> Update:
        return {self.rail: rail_html(self.context, source)}

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
        yield {self.saved_note: says("", f"{say('speak.saving')} …")}

        def save(_: BackgroundTask[Any]) -> Voice:
            """Add the voice to the library."""
            if source is not None and source.made_by_encore and not accepted:
                raise FormIncomplete(say("speak.accept_first", box=say("speak.accept_synthetic")))
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
                f"save {session_of(request)}",
                say("speak.saving"),
                save,
                lambda state: {self.saved_note: task_line(state)},
            )
        except EncoreError as error:
            yield {self.saved_note: failure(error)}
            return
        saved_key = source.recording_key if source is not None else ""
        yield {self.saved_note: saved_line(voice, saved_key), **self._list_voices(source)}


def _added(files: list[str] | None, recorded: str | None) -> list[Path]:
    """The recordings that are shown as uploaded or recorded, examined or not."""
    return [Path(path) for path in [*(files or []), *([recorded] if recorded else [])]]


def _pick_update(references: list[Reference], best: Reference | None) -> Any:
    """A choice only if there are several."""
    choices = [(f"{one.name} ({one.report.seconds:.1f} s)", str(one.path)) for one in references]
    if sum(one.report.seconds for one in references) <= MAX_TOGETHER_SECONDS:
        choices.append((say("speak.all_together"), ALL_TOGETHER))
    value = str(best.path) if best is not None else None
    return gr.update(choices=choices, value=value, visible=len(references) > 1)
