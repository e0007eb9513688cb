"""The right half of the Speak tab: a text, how it is spoken, and the takes."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gradio as gr
import numpy as np

from backend.errors import EncoreError
from backend.serving.introductions import NUM_TRIALS
from backend.serving.loaded_model import LoadedModel
from backend.serving.requests import Reference, SynthesisRequest
from backend.serving.speech.audio_stream import AudioStream, SpeechProgress
from backend.serving.speech.text_check import MAX_TEXT_LENGTH
from backend.studio import Studio
from backend.takes.errors import TakeTooShort
from backend.takes.keeper import TakeKeeper
from backend.takes.take import Take
from backend.voices.consent import SpokenProof
from backend.voices.voice import CloningMode, Voice
from ui.bar.bar import fixed_html
from ui.consent import Stated
from ui.context import PageContext
from ui.events import Inputs, SaidInPlace, Update, bind, client_of, session_of
from ui.fields import (
    build_language,
    build_note,
    build_seed,
    build_title,
    language_choices,
    parse_seed,
    require_model,
)
from ui.html.messages import NOTHING, failure, says, task_line
from ui.html.takes import download_name
from ui.html.templates import html
from ui.html.words import file_url
from ui.live.follow import POLL_SECONDS
from ui.live.live_audio import LiveAudio, build_live_player
from ui.source import Source, VoiceFields
from ui.tabs.voice.render import (
    FIRST_TEXT,
    StepsMissing,
    likeness_line,
    not_kept_line,
    part_line,
    refusal_line,
    speaking_line,
    spoken_line,
)
from ui.takes import OwnTakes
from ui.words.words import say, word

STOP_BUTTON_ID = "stop"

DESK_SCRIPT = Path(__file__).with_name("desk.js")

_MAX_TITLE = 60
"""Characters of a text that stand for it beside the player."""

CHARACTERS_PER_SECOND = 15.0
"""Of English at its usual pace."""


@dataclass(frozen=True, kw_only=True)
class SpeakForm:
    """What is filled in, as Gradio hands it over by name."""

    source: Source | None
    transcript: str
    statement: str | None
    who: str
    proof: SpokenProof | None
    text: str
    way: str | None
    language: str | None
    seed: str
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    signed: str = ""
    style: str | None = ""

    @property
    def first_words(self) -> str:
        """What a take of it is called while it is made."""
        words = " ".join(self.text.split())
        return words if len(words) <= _MAX_TITLE else words[: _MAX_TITLE - 1].rsplit(" ", 1)[0] + " …"

    @property
    def voice_name(self) -> str:
        """Who speaks."""
        return self.source.name if self.source is not None else ""

    def missing(self) -> list[str]:
        """What is still to be done before it can speak, by its words."""
        needs_consent = self.source is not None and self.source.kind == "recording"
        needs_transcript = self.way == "in-context" and not self.transcript.strip()
        steps = {
            "speak.missing_voice": self.source is None,
            "speak.missing_statement": needs_consent and not self.statement,
            "speak.missing_who": needs_consent and not self.who.strip(),
            "speak.missing_text": not self.text.strip(),
            "speak.missing_transcript": needs_transcript,
        }
        return [step for step, is_missing in steps.items() if is_missing]

    def request(self, studio: Studio, client: str = "") -> SynthesisRequest:
        """The form as a request. Raises EncoreError for what cannot be spoken."""
        assert self.source is not None
        is_stored = self.source.kind == "voice"
        return SynthesisRequest(
            voice=studio.voices.get(self.source.voice_id) if is_stored else self._reference(self.source),
            mode=cast(CloningMode, self.way) if is_stored and self.way not in (None, "auto") else None,
            text=self.text.strip(),
            language=self.language or "auto",
            style=(self.style or "") if is_stored else "",
            seed=parse_seed(self.seed),
            sampling_changes={
                "temperature": self.temperature,
                "top_k": self.top_k,
                "top_p": self.top_p,
                "repetition_penalty": self.repetition_penalty,
            },
            made_by="studio",
            client=client,
        )

    def _reference(self, source: Source) -> Reference:
        assert source.reference is not None
        return Reference(
            name=source.name,
            recording=source.reference,
            transcript=None if self.way == "x-vector" else self.transcript.strip() or None,
            consent=Stated(
                statement=self.statement, who=self.who, proof=self.proof, source=source, signed=self.signed
            ).read(),
        )


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """A take that was just made, whose list it is in, and the recording it should sound like."""

    take: Take
    owner: str
    reference: Path | None


def expected_seconds(segments: Sequence[str], progress: SpeechProgress) -> float:
    """How long a take will be: by what its finished parts took, and before that by its characters."""
    if progress.share_done > 0 and progress.segments_done == progress.num_segments:
        return progress.seconds_spoken
    by_text = sum(map(len, segments)) / CHARACTERS_PER_SECOND
    by_pace = progress.seconds_spoken / progress.share_done if progress.share_done > 0 else by_text
    return max(by_pace if progress.segments_done > 1 else by_text, progress.seconds_spoken)


class SpeechPart:
    """Speaks what is filled in, live, and keeps the takes."""

    def __init__(self, context: PageContext, voice: VoiceFields) -> None:
        self.context = context
        with gr.Column(elem_id="desk"):
            self.text = gr.Textbox(
                label=word("speak.text"),
                value=FIRST_TEXT,
                placeholder=word("speak.placeholder"),
                lines=8,
                max_lines=16,
                # The box would cut a longer one without a word; what is too long is refused in words.
                max_length=10 * MAX_TEXT_LENGTH,
                elem_id="text",
            )
            with gr.Row(elem_id="how"):
                self.way = gr.Radio(
                    [(word("speak.closer"), "auto"), (word("speak.freer"), "x-vector")],
                    value="auto",
                    label=word("speak.way"),
                    scale=1,
                    min_width=200,
                    elem_id="way",
                )
                self.style = gr.Dropdown(
                    [(word("speak.no_style"), "")],
                    value="",
                    label=word("speak.style"),
                    visible=False,
                    scale=1,
                    min_width=160,
                    elem_id="style",
                )
                self.language = build_language(interactive=False, scale=1, min_width=160, elem_id="language")
            self._build_settings()
            with gr.Row(elem_id="go"):
                gr.HTML(
                    '<span class="count"></span>',
                    elem_id="count",
                    js_on_load=DESK_SCRIPT.read_text("utf-8"),
                    apply_default_css=False,
                )
                self.speak = gr.Button(
                    word("speak.waiting"), variant="primary", interactive=False, min_width=160, elem_id="speak"
                )
                self.stop = gr.Button(
                    word("speak.stop"), variant="primary", interactive=False, min_width=160, elem_id=STOP_BUTTON_ID
                )
            # Says to the style sheet which of the two buttons is there.
            self._speaking = gr.HTML("", elem_id="speaking", js_on_load=None)
            self.status = gr.HTML(NOTHING, elem_id="status")
            self.likeness = gr.HTML(NOTHING, elem_id="likeness")
        self.player = build_live_player(STOP_BUTTON_ID)
        self._spoken = gr.State(None)
        self._part = gr.JSON(None, visible=False, elem_id="pressed-part")
        with gr.Column(elem_id="takes-part"):
            build_title("speak.takes")
            build_note("speak.takes_own")
            self.takes = OwnTakes(context)
        self._connect(voice)

    def _build_settings(self) -> None:
        # Not an accordion: its fields come into the page when it is opened, and may miss what was filled in again.
        with gr.Column(elem_id="settings"):
            handle = html(
                '<button type="button" aria-expanded="false" aria-controls="settings-fields" data-word="speak.more">'
                "{}</button>",
                say("speak.more"),
            )
            fixed_html(handle, "settings-handle")
            self._build_settings_fields()

    def _build_settings_fields(self) -> None:
        with gr.Column(elem_id="settings-fields"):
            self.seed = build_seed(interactive=False, elem_id="seed")
            self.temperature = gr.Slider(
                0, 2, 0.9, step=0.05, label=word("speak.temperature"), info=word("speak.temperature_help")
            )
            self.top_k = gr.Slider(0, 500, 50, step=1, label=word("speak.top_k"), info=word("speak.top_k_help"))
            self.top_p = gr.Slider(0.05, 1, 1, step=0.05, label=word("speak.top_p"), info=word("speak.top_p_help"))
            self.repetition_penalty = gr.Slider(
                0.8, 2, 1.05, step=0.05, label=word("speak.repetition"), info=word("speak.repetition_help")
            )

    def model_update(self, loaded: LoadedModel | None) -> Update:
        """What waits for a model: enabled, with the checkpoint's own values, or disabled."""
        if loaded is None:
            disabled = {field: gr.update(interactive=False) for field in self.waiting}
            return disabled | {self.speak: gr.update(value=say("speak.waiting"), interactive=False)}
        sampling = loaded.facts.default_sampling
        values = {
            self.speak: say("speak.button"),
            self.temperature: sampling.temperature,
            self.top_k: sampling.top_k,
            self.top_p: sampling.top_p,
            self.repetition_penalty: sampling.repetition_penalty,
        }
        return {
            **{field: gr.update(interactive=True) for field in self.waiting},
            **{field: gr.update(value=value, interactive=True) for field, value in values.items()},
            self.language: gr.update(choices=language_choices(loaded), value="auto", interactive=True),
        }

    @property
    def waiting(self) -> list[gr.components.Component]:
        """Components that are disabled without a model."""
        sampling = [self.temperature, self.top_k, self.top_p, self.repetition_penalty]
        return [self.speak, self.stop, self.language, self.seed, *sampling]

    def _connect(self, voice: VoiceFields) -> None:
        form: Inputs = {
            "browser": self.takes.browser,
            "source": voice.source,
            "transcript": voice.transcript,
            "statement": voice.statement,
            "who": voice.who,
            "proof": voice.proof,
            "signed": voice.signed,
            "text": self.text,
            "way": self.way,
            "language": self.language,
            "style": self.style,
            "seed": self.seed,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "repetition_penalty": self.repetition_penalty,
        }
        begun = bind(self.speak.click, self._begin, None, [self.status, self._speaking], quick=True)
        outputs = [self.status, self.player, self.takes.listed, self._spoken]
        run = bind(begun.then, self._speak, form, outputs, api="speak", concurrency_id="model", concurrency_limit=1)
        bind([run.then, run.failure], self._end, None, self._speaking, quick=True)
        pressing = [self.status, self._speaking, self._part]
        pressed = bind(self.takes.listed.click, self._press_part, None, pressing, quick=True)
        again = bind(
            pressed.then,
            self._speak_part,
            {"browser": self.takes.browser, "pressed": self._part},
            outputs,
            api="speak_part",
            concurrency_id="model",
        )
        bind([again.then, again.failure], self._end, None, self._speaking, quick=True)
        bind(self.stop.click, self._stop, api="stop", quick=True)
        bind(voice.source.change, lambda: {self.likeness: NOTHING}, None, self.likeness, quick=True)
        chosen = {"source": voice.source, "style": self.style}
        bind(voice.source.change, self.offer_styles, chosen, self.style, api="offer_styles", quick=True)
        bind(
            voice.source.change,
            self._prepare,
            {"source": voice.source, "transcript": voice.transcript, "way": self.way},
            api="prepare_voice",
            concurrency_limit=2,
            trigger_mode="always_last",
        )
        bind(
            self._spoken.change,
            self._review,
            {"spoken": self._spoken},
            [self.likeness, self.takes.listed],
            api="review_take",
            concurrency_limit=None,
            trigger_mode="multiple",
        )

    def _begin(self, request: gr.Request) -> Update:
        self.context.flags.begin(session_of(request))
        return {self.status: says("", say("speak.turn")), self._speaking: html("<i></i>")}

    def _end(self) -> Update:
        return {self._speaking: ""}

    def _stop(self, request: gr.Request) -> None:
        self.context.flags.stop(session_of(request))

    def _speak(self, browser: str, request: gr.Request, **fields: Any) -> Iterator[Update]:
        """Speak in the list of takes that belongs to this browser; what stands in the way is said beside the button."""
        try:
            yield from self._speak_form(SpeakForm(**fields), browser, request)
        except EncoreError as error:
            yield {self.status: refusal_line(error)}
            raise SaidInPlace(str(error)) from error

    def _speak_form(self, form: SpeakForm, browser: str, request: gr.Request) -> Iterator[Update]:
        studio, session = self.context.studio, session_of(request)
        with self.context.flags.watch(session) as is_stopped:
            yield {self.status: says("", f"{_waiting_for(studio.loaded)} …")}
            if steps := form.missing():
                raise StepsMissing(steps)
            spoken, synthesizer = form.request(studio, client_of(request)), require_model(studio)
            # The same seed would say the same once more.
            num_trials = NUM_TRIALS if spoken.seed is None else 1
            for trial in range(1, num_trials + 1):
                stream = yield from self.context.follow(
                    f"cast {session}",
                    _waiting_for(synthesizer),
                    lambda _: synthesizer.speak(spoken, cancelled=is_stopped),
                    lambda state: {self.status: task_line(state)},
                )
                # A program that drives the page has no browser; its list ends with the visit.
                problem = yield from self._keep_take(stream, form, browser or f"visit {session}")
                if problem is None:
                    return
                is_last = trial == num_trials
                yield {self.status: failure(problem) if is_last else says("", say("speak.once_more"))}

    def _keep_take(
        self, stream: AudioStream, form: SpeakForm, owner: str
    ) -> Generator[Update, None, TakeTooShort | None]:
        """Play a take as it is made, and keep it; returns why it cannot be its text, where it cannot."""
        studio = self.context.studio
        # Closed at once when the listener leaves: the model is then free for the next one.
        with closing(stream), TakeKeeper(studio.takes, stream.sample_rate, stream.comment) as keeper:
            live = LiveAudio(uuid.uuid4().hex, stream.sample_rate, title=form.first_words, voice=form.voice_name)
            yield from self._play(stream, keeper, live)
            if not stream.num_samples:
                yield {self.status: says("", say("speak.too_soon"))}
                return None
            try:
                stream.check_length()
            except TakeTooShort as error:
                return error
            take = keeper.keep(stream.facts(), owner)
        if take is None:
            yield {self.status: not_kept_line(keeper.problem)}
            return None
        place = self.context.files.place(take.path)
        whole = live.complete(file_url(place) if place is not None else "", download_name(take))
        spoken_take = Spoken(take=take, owner=owner, reference=_reference_of(form, studio))
        yield {
            self.status: spoken_line(take),
            self.takes.listed: self.takes.html(owner),
            self.player: whole,
            self._spoken: spoken_take,
        }
        return None

    def offer_styles(self, source: Source | None, style: str | None) -> Update:
        """The styles of a voice of the library, where it has some; the chosen one stays where it has that, too."""
        is_stored = source is not None and source.kind == "voice"
        styles = self.context.studio.voices.get(source.voice_id).styles if source is not None and is_stored else ()
        choices = [(say("speak.no_style"), ""), *((one.name, one.name) for one in styles)]
        kept = style if any(one.name == style for one in styles) else ""
        return {self.style: gr.update(choices=choices, value=kept, visible=bool(styles))}

    def _prepare(self, source: Source | None, transcript: str, way: str | None) -> None:
        """Analyse the recording of a voice as soon as it is chosen, so that its first take begins as soon as others.

        A recording of the user's own waits for Speak, when its consent is there.
        """
        studio = self.context.studio
        loaded = studio.loaded
        if source is None or source.kind == "recording" or loaded is None:
            return
        if source.kind == "voice":
            voice: Voice | Reference = studio.voices.get(source.voice_id)
        else:
            assert source.reference is not None
            spoken = None if way == "x-vector" else transcript.strip() or None
            voice = Reference(name=source.name, recording=source.reference, transcript=spoken)
        loaded.prepare(SynthesisRequest(voice=voice, text="", made_by="studio"))

    def _review(self, spoken: Spoken | None) -> Iterator[Update]:
        """Listen to what was just spoken, beside whatever is spoken next; what is found is kept with the take."""
        if spoken is None:
            return
        studio, tasks, take = self.context.studio, self.context.background_tasks, spoken.take
        reference = spoken.reference
        if reference is not None:
            likening = tasks.start(
                f"likeness {take.id}", "Comparing", lambda _: studio.likeness_of(take, reference), replaces=True
            )
            while not likening.has_ended(POLL_SECONDS):
                yield {}
            found = likening.state.result
            yield {self.likeness: likeness_line(take) if found is not None and not found.is_there else NOTHING}
        # Not `follow`: what is heard is kept also where the page is left.
        hearing = tasks.start(
            f"hear {take.id}", "Listening to the take", lambda task: studio.hear_take(take, task.report), replaces=True
        )
        while not hearing.has_ended(POLL_SECONDS):
            yield {}
        if hearing.error is None:
            yield {self.takes.listed: self.takes.html(spoken.owner)}

    def _press_part(self, event: gr.EventData, request: gr.Request) -> Update:
        if not event.part:
            return {self._part: None}
        return {**self._begin(request), self._part: {"take": str(event.take), "number": int(event.part)}}

    def _speak_part(self, browser: str, pressed: dict[str, Any] | None, request: gr.Request) -> Iterator[Update]:
        """Speak one part of a take again, and put it in its place."""
        if not pressed:
            return
        session, studio = session_of(request), self.context.studio
        with self.context.flags.watch(session) as is_stopped:
            try:
                owner = browser or f"visit {session}"
                take, number = studio.takes.get(pressed["take"], owner), pressed["number"]
                loaded = require_model(studio)
                stream = yield from self.context.follow(
                    f"cast {session}",
                    _waiting_for(loaded),
                    lambda _: studio.speak_part_again(
                        loaded, take, number, client=client_of(request), cancelled=is_stopped
                    ),
                    lambda state: {self.status: task_line(state)},
                )
                with closing(stream):
                    title = say("speak.part_title", number=number, take=take.number)
                    live = LiveAudio(uuid.uuid4().hex, stream.sample_rate, title=title, voice=take.voice)
                    chunks = []
                    for chunk in stream:
                        chunks.append(chunk)
                        progress = stream.progress()
                        yield {
                            self.status: speaking_line(progress),
                            self.player: live.add(chunk, lead_seconds=progress.lead_seconds),
                        }
                    yield {self.player: live.complete()}
                    if is_stopped():
                        yield {self.status: says("", say("speak.part_unchanged"))}
                        return
                    take = studio.keep_part(take, number, stream, np.concatenate(chunks))
            except EncoreError as error:
                # Beside the button: the take it belongs to is unchanged.
                yield {self.status: failure(error)}
                return
            yield {
                self.status: part_line(take, number),
                self.takes.listed: self.takes.html(owner),
                self._spoken: Spoken(take=take, owner=owner, reference=None),
            }

    def _play(self, stream: AudioStream, keeper: TakeKeeper, live: LiveAudio) -> Iterator[Update]:
        for chunk in stream:
            keeper.write(chunk)
            progress = stream.progress()
            expected = expected_seconds(stream.segments, progress)
            yield {self.status: speaking_line(progress), self.player: live.add(chunk, expected, progress.lead_seconds)}
        yield {self.player: live.complete()}


def _waiting_for(loaded: LoadedModel | None) -> str:
    """What comes before the sound: the voice is analysed, here or on a cluster that may have to be joined again."""
    return say("speak.asking_cluster" if loaded is not None and loaded.facts.cluster else "speak.listening")


def _reference_of(form: SpeakForm, studio: Studio) -> Path | None:
    source = form.source
    if source is None or source.kind != "voice":
        return source.reference if source is not None else None
    return studio.voices.get(source.voice_id).reference
