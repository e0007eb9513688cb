"""Choosing on the voice tab what is cloned: a sample, a voice of the library, or one of several recordings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from backend.audio.quality import ReferenceReport
from backend.background_tasks import BackgroundTask, TaskState
from backend.voices.samples import get_sample
from ui.context import PageContext
from ui.live.follow import follow
from ui.source import Reference, Source
from ui.tabs.dataset import render as render_dataset
from ui.tabs.voice import render as render_source
from ui.web.temporary import unguessable_path

ALL_TOGETHER = "all"
SAMPLE_STATEMENT = "synthetic"


@dataclass(frozen=True)
class Choices:
    """What the handlers of these choices do."""

    context: PageContext

    def use_sample(self, name: str | None, request: gr.Request) -> Iterator[list[Any]]:
        """One that came with the program."""
        if name is None:
            return
        sample = get_sample(name)
        yield [gr.skip(), render_source.listening(sample.name.title(), 1, 1), sample.reference_text, *[gr.skip()] * 3]

        def look(_: BackgroundTask) -> tuple[Path, ReferenceReport]:
            path = self.context.files.place(self.context.studio.comparing.resolver.sample_reference(name))
            assert path is not None, "it was just written"
            return path, self.context.studio.examine(path)

        def show(state: TaskState) -> list[Any]:
            return [gr.skip(), render_dataset.task_line(state), *[gr.skip()] * 4]

        title = f"Sample {name.title()}"
        what = f"Listening to {name.title()}"
        path, report = yield from follow(
            self.context.background_tasks, f"sample {request.session_hash}", what, look, show
        )
        source = Source(kind="sample", name=title, sample=name, reference=path, preview=path)
        card = render_source.sample_card(sample, report, path)
        hidden = gr.update(visible=False)
        yield [source, card, sample.reference_text, SAMPLE_STATEMENT, gr.update(value=None), hidden]

    def use_saved(self, voice_id: str | None) -> list[Any]:
        """One of the library."""
        if not voice_id:
            return [gr.skip()] * 5
        voice = self.context.studio.voices.get(voice_id)
        preview = self.context.files.place(voice.reference) if voice.reference is not None else None
        return [
            Source(kind="voice", name=voice.name, voice_id=voice.id, preview=preview),
            render_source.saved_card(voice, preview),
            voice.transcript or "",
            gr.update(value=None),
            gr.update(visible=False),
        ]

    def use_picked(
        self, picked: str | None, references: list[Reference], request: gr.Request
    ) -> Iterator[Source | None]:
        """One of the recordings that were given, or all of them."""
        if picked == ALL_TOGETHER:
            together = unguessable_path(self.context.folder, "together.wav")
            previews = [reference.preview for reference in references]
            yield from follow(
                self.context.background_tasks,
                f"sample {request.session_hash}",
                "Joining the recordings",
                lambda _: self.context.studio.join_recordings(previews, together),
                # Until they are one, there is nobody to speak.
                lambda _: None,
            )
            yield Source(kind="recording", name="all recordings", reference=together, preview=together)
            return
        chosen = next((reference for reference in references if str(reference.path) == picked), None)
        yield Source.of_reference(chosen) if chosen else None


def saved_choices(context: PageContext) -> list[tuple[str, str]]:
    """Names and ids of the library's voices, the newest first."""
    return [(voice.name, voice.id) for voice in reversed(context.studio.voices.list())]
