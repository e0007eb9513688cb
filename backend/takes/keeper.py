"""Keeping a take while it is heard: speech needs no disk, so a full one costs the take and not the speech."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from backend.audio.writing import WavWriter
from backend.errors import EncoreError
from backend.takes.take import Take, TakeFacts
from backend.takes.takes import Takes

_logger = logging.getLogger(__name__)


class TakeKeeper:
    """Writes a take's samples to a file while they are heard, and adds it to a list at the end.

    with TakeKeeper(takes, sample_rate) as keeper:
        for samples in stream:
            keeper.write(samples)
        take = keeper.keep(stream.facts(), owner)

    Attributes:
        problem: why the take cannot be kept, in a sentence; empty while it can be.
    """

    def __init__(self, takes: Takes, sample_rate: int, comment: str = "") -> None:
        self._takes, self._sample_rate, self._comment = takes, sample_rate, comment
        self._incoming, self._writing = ExitStack(), ExitStack()
        self._path: Path | None = None
        self._writer: WavWriter | None = None
        self.problem = ""

    def __enter__(self) -> Self:
        try:
            self._path = self._incoming.enter_context(self._takes.incoming())
            self._writer = self._writing.enter_context(WavWriter(self._path, self._sample_rate, self._comment))
        except (OSError, EncoreError) as error:
            self._give_up(error)
        return self

    def write(self, samples: NDArray[np.floating[Any]]) -> None:
        """Append mono samples (samples,); does nothing once there is a problem."""
        if self._writer is None:
            return
        try:
            self._writer.write(samples)
        except (OSError, EncoreError) as error:
            self._give_up(error)

    def keep(self, facts: TakeFacts, owner: str) -> Take | None:
        """Add what was written to the end of a list; None where that failed, which `problem` then explains."""
        if self._writer is None or self._path is None:
            return None
        self._writer = None
        try:
            self._writing.close()
            return self._takes.add(facts, self._path, owner)
        except (OSError, EncoreError) as error:
            self._give_up(error)
            return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._discard()

    def _give_up(self, error: Exception) -> None:
        _logger.warning("a take is not kept: %s", error)
        self.problem = str(error)
        self._discard()

    def _discard(self) -> None:
        """Remove what was not added."""
        self._writer = None
        discarded = _NotKept()
        self._writing.__exit__(_NotKept, discarded, None)
        self._incoming.close()


class _NotKept(Exception):
    """Tells the writer that its file is not wanted."""
