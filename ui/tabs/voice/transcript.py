"""What the recording says: cleared with each other recording, written down by itself, and the person's to correct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gradio as gr
from markupsafe import Markup

from backend.background_tasks import TaskCancelled, TaskState
from backend.errors import EncoreError
from backend.transcription.listening import Heard
from ui.context import PageContext
from ui.events import Update, bind, session_of
from ui.html.messages import NOTHING, note
from ui.source import Source
from ui.words.words import say, word


class TranscriptPart:
    """The transcript of the source, and how it came there.

    Attributes:
        field: the text, as typed or heard.
        state: whether it is being transcribed, or was.
    """

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self.field = gr.Textbox(
            label=word("speak.transcript"),
            info=word("speak.transcript_help"),
            lines=2,
            max_length=5_000,
            elem_id="transcript",
        )
        self.state = gr.HTML(NOTHING, elem_id="transcript-state")
        self._heard: gr.State = gr.State(None)

    def connect(self, source: gr.State) -> None:
        """Transcribe whatever recording the voice comes from, from now on."""
        bind(
            source.change,
            self._transcribe,
            {"source": source},
            [self.state, self._heard],
            api="transcribe",
            trigger_mode="always_last",
            concurrency_limit=4,
        )
        # An event of its own: what was typed while it listened is newer than what the first one was given.
        typed = {"heard": self._heard, "source": source, "typed": self.field}
        bind(self._heard.change, self._fill_in, typed, [self.field, self.state], api="fill_in_transcript", quick=True)

    def cleared(self, before: Source | None, after: Source | None, request: gr.Request) -> Update:
        """What to show of the transcript when the source changes: nothing of the one before."""
        if before is not None and after is not None and before.reference == after.reference:
            return {}
        # Heard for nothing; the event that waits for it ends, and the next one begins.
        self.context.background_tasks.cancel(_key(request))
        return {self.field: "", self.state: NOTHING}

    def _transcribe(self, source: Source | None, request: gr.Request) -> Iterator[Update]:
        """Listen to a recording in the background; samples and voices of the library bring their own text."""
        self.context.background_tasks.cancel(_key(request))
        if source is None or source.kind != "recording" or source.reference is None:
            yield {self.state: NOTHING, self._heard: None}
            return
        # Also where the same was heard before another recording came between.
        yield {self._heard: None}
        reference, studio = source.reference, self.context.studio
        try:
            heard: Heard | None = yield from self.context.follow(
                _key(request),
                say("data.stage_transcribe"),
                lambda task: studio.hear_recording(reference, task.report),
                lambda state: {self.state: transcribing(state)},
            )
        except TaskCancelled:
            return
        except EncoreError:
            # The text is optional: whatever is wrong with the recording is said beside the recording.
            yield {self.state: note(say("speak.unsure"))}
            return
        yield {self._heard: (reference, heard)}

    def _fill_in(self, heard: tuple[Path, Heard | None] | None, source: Source | None, typed: str) -> Update:
        """Write down what was heard, unless the person was faster or the voice is another by now."""
        if heard is None or source is None or source.reference != heard[0]:
            return {}
        if typed.strip():
            return {self.state: NOTHING}
        if heard[1] is None or not heard[1].is_trusted:
            return {self.state: note(say("speak.unsure"))}
        return {self.field: heard[1].text, self.state: note(say("speak.transcribed"))}


def transcribing(state: TaskState[object]) -> Markup:
    """That a recording is being transcribed, and how far."""
    share = f" {100 * state.num_done // state.num_total} %" if state.num_done else ""
    return note(say("speak.transcribing", share=share))


def _key(request: gr.Request) -> str:
    return f"transcribe {session_of(request)}"
