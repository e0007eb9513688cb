"""Faster or slower speech at the same pitch."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.filter import Graph

_SLOWEST_STAGE, _FASTEST_STAGE = 0.5, 2.0
"""FFmpeg's filter drops samples beyond the latter and refuses less than the former."""


class Tempo:
    """Stretches or squeezes a stream in time (FFmpeg's `atempo`, overlapping pieces of it where they match).

    tempo = Tempo(1.5, 24_000)
    for chunk in stream:
        yield tempo.add(chunk)
    yield tempo.finish()
    """

    def __init__(self, speed: float, sample_rate: int) -> None:
        """Begin a stream; `speed` is above 0, and 2 is twice as fast."""
        self.speed, self.sample_rate = speed, sample_rate
        self._num_samples = 0
        self._graph = _build_graph(speed, sample_rate) if speed != 1 else None

    def add(self, chunk: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """What can be made of the stream so far; may be empty, because a little is kept back to match what follows."""
        samples = np.ascontiguousarray(chunk, dtype=np.float32)
        if self._graph is None or not len(samples):
            return samples
        av = _ffmpeg()
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout="mono")
        frame.sample_rate, frame.pts = self.sample_rate, self._num_samples
        frame.time_base = Fraction(1, self.sample_rate)
        self._num_samples += len(samples)
        self._graph.push(frame)
        return self._pull()

    def finish(self) -> NDArray[np.float32]:
        """The rest."""
        if self._graph is None or not self._num_samples:
            return np.zeros(0, dtype=np.float32)
        self._graph.push(None)
        return self._pull()

    def _pull(self) -> NDArray[np.float32]:
        assert self._graph is not None
        av, pieces = _ffmpeg(), []
        while True:
            try:
                frame = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                break
            assert isinstance(frame, av.AudioFrame)
            pieces.append(frame.to_ndarray().reshape(-1).astype(np.float32, copy=False))
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)


def at_tempo(samples: NDArray[np.float32], speed: float, sample_rate: int) -> NDArray[np.float32]:
    """A whole sound at another speed: 1 / `speed` times as long to the sample, unlike what the filter gives."""
    tempo = Tempo(speed, sample_rate)
    changed = np.concatenate((tempo.add(samples), tempo.finish()))
    length = length_at(len(samples), speed)
    return np.pad(changed[:length], (0, max(0, length - len(changed))))


def length_at(num_samples: int, speed: float) -> int:
    """How many samples a sound has at another speed."""
    return round(num_samples / speed)


def _ffmpeg() -> Any:  # Any: the module itself
    """PyAV, which machines that only train lack: at speed 1 nothing of it is needed."""
    import av.filter  # noqa: PLC0415 - see above

    return av


def _build_graph(speed: float, sample_rate: int) -> Graph:
    num_stages = max(1, math.ceil(abs(math.log2(speed))))
    stage = speed ** (1 / num_stages)
    assert _SLOWEST_STAGE <= stage <= _FASTEST_STAGE
    graph: Graph = _ffmpeg().filter.Graph()
    nodes = [
        graph.add_abuffer(
            format="flt", sample_rate=sample_rate, layout="mono", time_base=Fraction(1, sample_rate), name="in"
        ),
        *(graph.add("atempo", f"{stage:.9f}") for _ in range(num_stages)),
        graph.add("abuffersink"),
    ]
    for node, following in itertools.pairwise(nodes):
        node.link_to(following)
    graph.configure()
    return graph
