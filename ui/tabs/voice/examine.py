"""Recordings that were given to the page, one after the other: a verdict for each, and which of them can be used."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from backend.background_tasks import TaskCancelled
from backend.errors import RecordingError
from ui.context import PageContext
from ui.html.messages import cards, reason, says
from ui.live.follow import follow
from ui.source import Reference, delete_references
from ui.tabs.voice.render import listening, refusal, verdict
from ui.web.temporary import unguessable_path
from ui.words.words import say

MAX_RECORDINGS = 50

Said = tuple[Markup, bool]
"""What the page says, and whether there are recordings left that can be skipped."""


class Examining:
    """Examines recordings for one session; those it already knows are not examined again.

    Attributes:
        cards: what is said about each.
        fit: those that a voice can be cloned from.
    """

    def __init__(self, context: PageContext, key: str, known: dict[Path, Reference]) -> None:
        self._context, self._key, self._known = context, key, known
        self.cards: list[Markup] = []
        self.fit: list[Reference] = []

    def run(self, given: Sequence[Path]) -> Iterator[Said]:
        """Yield what there is to say while it goes on."""
        paths = given[:MAX_RECORDINGS]
        started, num_new = time.monotonic(), 0
        for number, path in enumerate(paths, 1):
            seconds_left = (time.monotonic() - started) * (len(paths) - number + 1) / num_new if num_new else None
            now = listening(path.name, number, len(paths), seconds_left)
            said = cards([*self.cards, now]), number < len(paths)
            yield said
            reference = self._known.pop(path, None)
            try:
                if reference is None:
                    num_new += 1
                    reference = yield from self._listen(path, said)
            except RecordingError as error:
                # Not a pop-up: it belongs to the recording, and stays beside it.
                self.cards.append(refusal(reason(error)))
                continue
            except TaskCancelled:
                skipped = len(paths) - number + 1
                self.cards.append(says("mixed", say("speak.num_skipped", number=skipped)))
                break
            self.fit.append(reference)
            name = path.name if len(given) > 1 else ""
            self.cards.append(verdict(reference.report, reference.preview, name=name))
        if len(given) > MAX_RECORDINGS:
            self.cards.append(refusal(say("speak.too_many", most=MAX_RECORDINGS)))
        delete_references(list(self._known.values()))

    def _listen(self, path: Path, said: Said) -> Generator[Said, None, Reference]:
        tasks = self._context.background_tasks
        return (yield from follow(tasks, self._key, path.name, lambda _: self._examine(path), lambda _: said))

    def _examine(self, path: Path) -> Reference:
        preview = unguessable_path(self._context.folder, "reference.wav")
        report = self._context.studio.examine(path, preview)
        return Reference(name=path.name, path=path, preview=preview, report=report)
