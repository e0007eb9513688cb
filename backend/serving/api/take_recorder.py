"""Stores what the API speaks while it is streamed; the client does not wait for it, and its failures break nothing."""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from backend.audio.formats import FORMAT_TABLE, AudioFormat
from backend.audio.pcm16 import wav_header
from backend.errors import EncoreError
from backend.serving.api.stored import TakeStore
from backend.serving.requests import SpeechBegun, SpeechSummary, SynthesisRequest

_logger = logging.getLogger(__name__)


class TakeRecorder:
    """Writes one speech to a file, and adds it to the takes once complete; does nothing if takes are not kept.

    Attributes:
        problem: why it cannot be kept, in a sentence; empty while it can be.
    """

    def __init__(self, takes: TakeStore | None, order: SynthesisRequest) -> None:
        self._takes, self._order = takes, order
        # Raw samples cannot be played; with a header before them they can.
        self._format: AudioFormat = "wav" if order.audio_format == "pcm" else order.audio_format
        self._stack = ExitStack()
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._has_failed, self._comment, self.problem = False, "", ""
        # A listener may leave while the last of it is being written in another thread.
        self._finishing = threading.Lock()
        self._is_closed = False

    def begin(self, event: SpeechBegun) -> None:
        """What the file will say of itself; before the first bytes."""
        self._comment = "" if event.statement is None else event.statement.as_comment()

    def add(self, content: bytes) -> None:
        """Write the next bytes of the file, into the system's cache, without waiting for the disk."""
        if self._takes is None or self._has_failed or not content:
            return
        try:
            if self._file is None:
                self._path = self._stack.enter_context(self._takes.incoming(FORMAT_TABLE[self._format].suffix))
                self._file = self._stack.enter_context(self._path.open("xb"))
                if self._order.audio_format == "pcm":
                    self._file.write(wav_header(0, comment=self._comment))
            self._file.write(content)
        except (OSError, EncoreError) as error:
            self._give_up(error)

    def finish(self, summary: SpeechSummary) -> None:
        """Add the complete speech to the takes. May wait for the disk."""
        with self._finishing:
            if self._takes is None or self._has_failed or self._file is None or self._path is None:
                return
            try:
                if self._format == "wav" and (self._order.is_streamed or self._order.audio_format == "pcm"):
                    _write_true_header(self._file, summary.sample_rate, self._comment)
                self._file.close()
                self._takes.add(summary.facts.model_copy(update={"audio_format": self._format}), self._path)
            except (OSError, EncoreError) as error:
                self._give_up(error)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Remove an incomplete file; nothing is stored from then on. Never waits: who is finishing removes it then."""
        self._is_closed = True
        if not self._finishing.acquire(blocking=False):
            return
        try:
            self._has_failed = True
            # What a full disk refused before, it may refuse again on closing; the file is removed all the same.
            with suppress(OSError):
                self._stack.close()
        finally:
            self._finishing.release()

    def _give_up(self, error: Exception) -> None:
        _logger.warning("a take is not kept: %s", error)
        self._has_failed, self.problem = True, explain_not_kept(error)


def explain_not_kept(error: Exception) -> str:
    """Why, for a client: without a path of this machine."""
    cause = error.__cause__ or error
    is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    is_full |= isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL"
    return "the server's disk is full" if is_full else "the server could not write it"


def _write_true_header(file: IO[bytes], sample_rate: int, comment: str) -> None:
    """Write the length into the header of a stream that began without knowing it."""
    num_bytes = file.tell() - len(wav_header(sample_rate, comment=comment))
    file.seek(0)
    file.write(wav_header(sample_rate, num_bytes=num_bytes, comment=comment))
