"""Has every voice of the library speak its sentence once, in the background, for all visitors together."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from backend.background_tasks import BackgroundTask, TaskBusy
from backend.errors import EncoreError
from backend.serving.introductions import find_introduction, make_introduction
from backend.takes.errors import TakeTooShort
from backend.voices.voice import Voice
from backend.web.redaction import public_message
from ui.context import PageContext
from ui.words.sentences import translated
from ui.words.words import say

_KEY = "introductions"
_logger = logging.getLogger(__name__)


class Introducing:
    """Makes what is missing, the newest voice first."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._failed: dict[tuple[str, str], str] = {}
        self._unlucky: set[tuple[str, str]] = set()

    def start(self, *, tries_again: bool = False) -> bool:
        """Make what is missing, unless that goes on already; returns whether something is being made.

        Args:
            tries_again: also what came to nothing by chance before.
        """
        if tries_again:
            for unlucky in list(self._unlucky):
                self._failed.pop(unlucky, None)
            self._unlucky.clear()
        if self._next() is None:
            return False
        with suppress(TaskBusy):
            self._context.background_tasks.start(_KEY, "Speaking a sentence in each voice", self._make)
        return True

    def find(self, voice: Voice) -> Path | None:
        """The sentence in a voice as the page may fetch it; None as long as there is none."""
        path = find_introduction(voice, self._model)
        return self._context.files.place(path) if path is not None else None

    def hint(self, voice: Voice) -> str:
        """Why there is none yet."""
        if self._context.studio.loaded is None:
            return say("voices.needs_model")
        return translated(self._failed.get((voice.id, self._model), "")) or say("voices.making")

    @property
    def _model(self) -> str:
        loaded = self._context.studio.loaded
        return loaded.name if loaded is not None else self._context.settings.model

    def _next(self) -> Voice | None:
        if self._context.studio.loaded is None:
            return None
        return next(
            (
                voice
                for voice in reversed(self._context.studio.voices.list())
                if (voice.id, self._model) not in self._failed and find_introduction(voice, self._model) is None
            ),
            None,
        )

    def _make(self, task: BackgroundTask[None]) -> None:
        while (voice := self._next()) is not None:
            loaded = self._context.studio.loaded
            if loaded is None:
                return
            try:
                made = make_introduction(loaded, voice, self._context.studio.signer, task.is_cancelled)
            except EncoreError as error:
                # Not tried again before the next start, for what it lacks will hardly have come meanwhile; words that
                # a small model has lost come with another seed.
                _logger.warning("%s could not speak its sentence: %s", voice.name, error)
                self._failed[voice.id, loaded.name] = public_message(error)
                if isinstance(error, TakeTooShort):
                    self._unlucky.add((voice.id, loaded.name))
                continue
            if made is None:
                return
