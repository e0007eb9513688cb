"""Recordings that were given to the page, one after the other: a verdict for each, and which of them can be used."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from backend.background_tasks import TaskCancelled
from backend.errors import RecordingError
from ui.context import PageContext
from ui.html import base as render
from ui.live.follow import follow
from ui.source import Reference, delete_references
from ui.tabs.voice import render as render_source
from ui.web.temporary import unguessable_path

MAX_RECORDINGS = 50

Said = tuple[str, bool]
"""What the page says, and whether there is still something that can be left out."""


class Examining:
    """Examines recordings for one session, those that it has already seen only once.

    Attributes:
        cards: what is said about each.
        fit: those that a voice can be cloned from.
    """

    def __init__(self, context: PageContext, key: str, known: dict[Path, Reference]) -> None:
        self._bench, self._key, self._known = context, key, known
        self.cards: list[str] = []
        self.fit: list[Reference] = []

    def run(self, given: Sequence[Path]) -> Iterator[Said]:
        """Yield what there is to say while it goes on."""
        paths = given[:MAX_RECORDINGS]
        started, num_new = time.monotonic(), 0
        for number, path in enumerate(paths, 1):
            seconds_left = (time.monotonic() - started) * (len(paths) - number + 1) / num_new if num_new else None
            listening = render_source.listening(path.name, number, len(paths), seconds_left)
            said = render.cards([*self.cards, listening]), number < len(paths)
            yield said
            reference = self._known.pop(path, None)
            try:
                if reference is None:
                    num_new += 1
                    reference = yield from self._hear(path, said)
            except RecordingError as error:
                # Not a pop-up: it belongs to the recording, and stays beside it.
                self.cards.append(render.refusal(str(error)))
                continue
            except TaskCancelled:
                self._leave_out(len(paths) - number + 1)
                break
            self._accept(reference, path.name if len(given) > 1 else "")
        if len(given) > MAX_RECORDINGS:
            self.cards.append(
                render.refusal(f"{MAX_RECORDINGS} recordings are the most at once; the others were left out.")
            )
        delete_references(list(self._known.values()))

    def _hear(self, path: Path, said: Said) -> Generator[Said, None, Reference]:
        return (
            yield from follow(
                self._bench.background_tasks, self._key, path.name, lambda _: self._examine(path), lambda _: said
            )
        )

    def _accept(self, reference: Reference, name: str) -> None:
        self.fit.append(reference)
        self.cards.append(render.verdict(reference.report, reference.preview, name=name))

    def _leave_out(self, num_recordings: int) -> None:
        self.cards.append(render.says("mixed", f"Stopped: {num_recordings} of the recordings were left out."))

    def _examine(self, path: Path) -> Reference:
        preview = unguessable_path(self._bench.folder, "reference.wav")
        report = self._bench.studio.examine(path, preview)
        return Reference(name=path.name, path=path, preview=preview, report=report)
