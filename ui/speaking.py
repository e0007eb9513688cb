"""What happens between the Speak button and a finished take."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from backend.errors import EncoreError
from backend.serving.speech import Speech
from backend.studio import LoadedModel, Studio
from training.model.take_request import TakeRequest
from ui import render
from ui.live_audio import LiveAudio
from ui.reference import Reference
from ui.stopping import StopFlags
from ui.takes import SessionTake, finish_take
from ui.temporary import unguessable_path

Outputs = tuple[Any, Any, Any, Any]
"""Status line, live player, list of takes, the takes themselves; each may be `gr.skip()`."""


class NotReady(EncoreError):
    """Something on the page is still to be filled in."""


LARGEST_SEED = 2**63 - 1
"""What the random generator takes."""


def parse_seed(written: str) -> int | None:
    """The seed a person has written, None for an empty field. Raises NotReady for anything but a whole number."""
    digits = written.strip()
    if not digits:
        return None
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > LARGEST_SEED:
        raise NotReady(f"{digits!r} is no seed. Use a whole number from 0 to {LARGEST_SEED}, or leave it empty.")
    return int(digits)


@dataclass(frozen=True, kw_only=True)
class SpeakForm:
    """What the person has filled in, as Gradio hands it over."""

    reference: Reference | None
    transcript: str
    has_consent: bool
    text: str
    language: str | None
    seed: str
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float

    def missing(self) -> list[str]:
        """What is still to be done before it can speak."""
        steps = {
            "add a recording of the voice that can be used": self.reference is None,
            "tick the box that you have the speaker's permission": not self.has_consent,
            "write what it should say": not self.text.strip(),
        }
        return [step for step, is_missing in steps.items() if is_missing]

    def request(self, studio: Studio, loaded: LoadedModel) -> TakeRequest:
        """The form as a request, with the voice of its recording. Raises EncoreError."""
        if steps := self.missing():
            raise NotReady(f"Before it can speak: {'; '.join(steps)}.")
        assert self.reference is not None
        return TakeRequest(
            text=self.text.strip(),
            voice=studio.clone(loaded, self.reference.path, self.transcript),
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
    """Speaks forms; takes are stored in `folder`, from which the page may serve files."""

    studio: Studio
    flags: StopFlags
    folder: Path

    def speak(self, form: SpeakForm, takes: list[SessionTake], session: str) -> Iterator[Outputs]:
        """Yield what the page shows while a take is made and when it is done. Raises EncoreError."""
        flag = self.flags.current(session)
        try:
            yield render.says("", "Listening to the recording …"), gr.skip(), gr.skip(), gr.skip()
            loaded = self._loaded()
            request = form.request(self.studio, loaded)
            speech = self.studio.speak(loaded, request, streaming=True, cancelled=flag.is_set)
            path = unguessable_path(self.folder, f"take-{len(takes) + 1}.wav")
            yield from self._stream(speech, path)
            if not speech.num_samples:
                path.unlink(missing_ok=True)
                yield render.says("", "Stopped before the first sound."), gr.skip(), gr.skip(), gr.skip()
                return
            take = finish_take(len(takes) + 1, loaded, request, speech, path)
            takes = [*takes, take]
            yield render.spoken_line(take), gr.skip(), render.take_list(takes), takes
        finally:
            self.flags.end(session, flag)

    def _stream(self, speech: Speech, path: Path) -> Iterator[Outputs]:
        live = LiveAudio(uuid.uuid4().hex, speech.sample_rate)
        # Closed at once when the listener leaves: the model is then free for the next one.
        with closing(self.studio.record(speech, path)) as chunks:
            for chunk in chunks:
                yield render.speaking_line(speech.progress()), live.add(chunk), gr.skip(), gr.skip()
        yield gr.skip(), live.complete(), gr.skip(), gr.skip()

    def _loaded(self) -> LoadedModel:
        if self.studio.loaded is None:
            raise NotReady("No model is loaded yet. Load one at the top of the page.")
        return self.studio.loaded


def delete_takes(takes: list[SessionTake]) -> None:
    """Remove the files of a session that is over."""
    for take in takes:
        take.path.unlink(missing_ok=True)
