"""What happens between the Speak button and a finished take."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from backend.background_tasks import BackgroundTasks
from backend.errors import EncoreError
from backend.serving.speech.speech import Speech
from backend.studio import LoadedModel, Studio
from backend.takes.take import TakeFacts, facts_of
from backend.voices.consent import Consent, SpokenProof
from backend.voices.samples import get_sample
from training.model.decoding.take_request import TakeRequest, VoicePrompt
from ui.html import base as render
from ui.live.follow import follow
from ui.live.live_audio import LiveAudio
from ui.live.stop_flags import StopFlags
from ui.source import Source
from ui.tabs.dataset import render as render_dataset
from ui.tabs.voice.takes import KeptTakes

Outputs = tuple[Any, Any, Any]
"""Status line, live player, list of takes; each may be `gr.skip()`."""


class NotReady(EncoreError):
    """Something on the page is still to be filled in."""


MAX_SEED = 2**63 - 1
"""What the random generator takes."""


def parse_seed(written: str) -> int | None:
    """The seed a person has written, None for an empty field. Raises NotReady for anything but a whole number."""
    digits = written.strip()
    if not digits:
        return None
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > MAX_SEED:
        raise NotReady(f"{digits!r} is no seed. Use a whole number from 0 to {MAX_SEED}, or leave it empty.")
    return int(digits)


@dataclass(frozen=True, kw_only=True)
class SpeakForm:
    """What the person has filled in, as Gradio hands it over."""

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

    def missing(self) -> list[str]:
        """What is still to be done before it can speak."""
        needs_consent = self.source is not None and self.source.kind == "recording"
        needs_transcript = self.way == "in-context" and not self.transcript.strip()
        steps = {
            "add a recording of the voice that can be used, or choose a sample voice": self.source is None,
            "choose the consent that holds for this recording": needs_consent and not self.statement,
            "write your name for the consent": needs_consent and not self.who.strip(),
            "write what it should say": not self.text.strip(),
            "write what the recording says, or clone from the sound alone": needs_transcript,
        }
        return [step for step, is_missing in steps.items() if is_missing]

    def consent(self, studio: Studio) -> Consent:
        """Of whoever's voice it is. Raises EncoreError."""
        assert self.source is not None
        if self.source.kind == "voice":
            return studio.voices.get(self.source.voice_id).consent
        return read_consent(self.statement, self.who, self.proof, self.source)

    def resolve(self, studio: Studio, loaded: LoadedModel) -> tuple[LoadedModel, VoicePrompt]:
        """The checkpoint and the prompt that speak. Raises EncoreError."""
        assert self.source is not None
        if self.source.kind == "voice":
            return studio.cast_voice(loaded, self.source.voice_id, self.way or "auto")
        assert self.source.reference is not None
        transcript = "" if self.way == "x-vector" else self.transcript
        return loaded, studio.clone(loaded, self.source.reference, transcript)

    def request(self, loaded: LoadedModel, prompt: VoicePrompt) -> TakeRequest:
        """The form as a request. Raises NotReady."""
        return TakeRequest(
            text=self.text.strip(),
            voice=prompt,
            language=self.language or "auto",
            seed=parse_seed(self.seed),
            sampling=replace(
                loaded.model.default_sampling,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                repetition_penalty=self.repetition_penalty,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """Speaks forms, and keeps the takes."""

    studio: Studio
    flags: StopFlags
    kept: KeptTakes
    background_tasks: BackgroundTasks

    def speak(self, form: SpeakForm, browser: str, session: str) -> Iterator[Outputs]:
        """Yield what the page shows while a take is made and when it is done. Raises EncoreError."""
        flag = self.flags.current(session)
        try:
            yield render.says("", "Listening to the recording …"), gr.skip(), gr.skip()
            if steps := form.missing():
                raise NotReady(f"Before it can speak: {'; '.join(steps)}.")
            assert form.source is not None
            consent = form.consent(self.studio)
            base = self._loaded()
            loaded, prompt = yield from follow(
                self.background_tasks,
                f"cast {session}",
                "Listening to the recording",
                lambda _: form.resolve(self.studio, base),
                lambda state: (render_dataset.task_line(state), gr.skip(), gr.skip()),
            )
            request = form.request(loaded, prompt)
            speech = self.studio.speak(loaded, request, streaming=True, cancelled=flag.is_set)
            with self.studio.takes.incoming() as file:
                yield from self._stream(speech, file)
                if not speech.num_samples:
                    yield render.says("", "Stopped before the first sound."), gr.skip(), gr.skip()
                    return
                facts = self._facts(form.source, loaded, request, speech, consent)
                take = self.studio.takes.add(facts, file, browser)
            yield render.spoken_line(take), gr.skip(), self.kept.html(browser)
        finally:
            self.flags.end(session, flag)

    def _facts(
        self, source: Source, loaded: LoadedModel, request: TakeRequest, speech: Speech, consent: Consent
    ) -> TakeFacts:
        return facts_of(
            speech,
            request,
            made_by="studio",
            voice=source.name,
            model_name=loaded.name,
            default_sampling=loaded.model.default_sampling,
            consent=consent,
        )

    def _stream(self, speech: Speech, path: Path) -> Iterator[Outputs]:
        live = LiveAudio(uuid.uuid4().hex, speech.sample_rate)
        # Closed at once when the listener leaves: the model is then free for the next one.
        with closing(self.studio.record(speech, path)) as chunks:
            for chunk in chunks:
                yield render.speaking_line(speech.progress()), live.add(chunk), gr.skip()
        yield gr.skip(), live.complete(), gr.skip()

    def _loaded(self) -> LoadedModel:
        if self.studio.loaded is None:
            raise NotReady("No model is loaded yet. Load one at the top of the page.")
        return self.studio.loaded


def read_consent(statement: str | None, who: str, proof: SpokenProof | None, source: Source) -> Consent:
    """The consent that was given on the page. Raises ConsentMissing."""
    if source.kind == "sample":
        return get_sample(source.sample).consent()
    return Consent.give(who, statement or "", spoken=proof)  # type: ignore[arg-type] # checked by the model itself
