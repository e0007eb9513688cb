"""The last things that happen to speech before anybody hears it: its speed, and the mark that says what it is."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from backend.serving.speech.speech_source import SpeechState
from backend.watermark.marker import Marker
from training.tempo import Tempo


class Finisher:
    """Passes speech on at the speed asked for, with the mark in it unless the operator switched that off."""

    def __init__(self, sample_rate: int, state: SpeechState, *, speed: float, marker: Marker | None) -> None:
        """Begin a take, whose `state` is kept up to date; `speed` is above 0, and 2 is twice as fast."""
        self._state = state
        self._tempo, self._marker = Tempo(speed, sample_rate), marker

    def finished(self, spoken: Generator[NDArray[np.float32]]) -> Generator[NDArray[np.float32]]:
        """What is heard of speech while it is made; chunks may be empty. Closes the speech at its end."""
        try:
            for chunk in spoken:
                self._state.num_spoken += len(chunk)
                yield self._mark(self._tempo.add(chunk))
            yield self._mark(self._tempo.finish())
            if self._marker is not None:
                yield self._marker.finish()
        finally:
            spoken.close()

    def _mark(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        # After the speed, which would stretch the mark.
        return self._marker.add(samples) if self._marker is not None else samples
