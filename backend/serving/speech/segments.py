"""The segments of a text on their way through an engine: some requested ahead, one being played."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.serving.engine.engine import Engine
from backend.serving.engine.take_stream import TakeStream
from backend.serving.speech.crossfade import Crossfader
from backend.serving.speech.sentences import measure
from backend.serving.speech.speech_source import SpeechState
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest

LETTERS_PER_SECOND = 14
"""Ordinary speech: how long a segment will roughly be."""


@dataclass
class Segment:
    """One segment that was requested; `was_live` if it is played while it is made."""

    request: TakeRequest
    stream: TakeStream
    was_live: bool

    @property
    def has_run_away(self) -> bool:
        """True if it reached a cap that nobody asked for; with a seed or a cap in the request it is as requested."""
        is_free = self.request.seed is None and self.request.max_frames is None
        return is_free and self.stream.finish_reason is FinishReason.LENGTH


class SegmentQueue:
    """Stitches segments together, the next few requested before they are needed."""

    def __init__(
        self,
        engine: Engine,
        requests: list[TakeRequest],
        state: SpeechState,
        *,
        streaming: bool,
        cancelled: Callable[[], bool],
        client: str = "",
    ) -> None:
        """Request the first segment; `state` is kept up to date. Raises what `Engine.submit` raises."""
        self._state = state
        self._engine, self._streaming, self._cancelled = engine, streaming, cancelled
        self._client = client
        # A player needs one more in time; for a whole file, as many as can be spoken at once.
        self._max_requested = 1 + (min(engine.segments_ahead, 1) if streaming else engine.segments_ahead)
        self._left = deque(requests[1:])
        self._requested = deque([self._request(requests[0], is_live=streaming)])

    @property
    def first_seed(self) -> int:
        """Of the first segment as it was requested first; to be asked for before it is played."""
        return self._requested[0].stream.seed

    def stitched(self) -> Generator[NDArray[np.float32]]:
        """Samples of all segments in order, with crossfades; chunks may be empty. Closes the queue at its end."""
        crossfader, state = Crossfader(self._engine.sample_rate), self._state
        try:
            for segment in self._in_order():
                reason = None
                state.starts.append(state.num_stitched)
                for chunk in self._audio_of(segment):
                    if self._cancelled():
                        # What was made ahead is dropped: stopped is stopped, however far the engine has come.
                        reason = FinishReason.CANCELLED
                        break
                    # A segment that is handed out whole could still have been played from its first frame on.
                    state.seconds_to_first_audio = state.seconds_to_first_audio or segment.stream.seconds_to_first_audio
                    state.pace = self._engine.pace
                    yield self._counted(crossfader.add(chunk))
                reason = reason or segment.stream.finish_reason
                assert reason is not None
                last = self._counted(crossfader.end_segment())
                state.seeds.append(segment.stream.seed)
                state.timelines.append(segment.stream.timeline)
                state.lengths.append(state.num_stitched + crossfader.num_held - state.starts[-1])
                state.finish_reasons.append(reason)
                yield last
                if reason is FinishReason.CANCELLED:
                    break
            yield self._counted(crossfader.finish())
        finally:
            self.close()

    def _counted(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        self._state.num_stitched += len(samples)
        return samples

    def close(self) -> None:
        """Cancel what was requested."""
        for segment in tuple(self._requested):
            segment.stream.close()
        self._requested.clear()
        self._left.clear()

    def _in_order(self) -> Iterator[Segment]:
        while self._requested or self._left:
            while self._left and len(self._requested) < self._max_requested:
                letters = sum(measure(segment.request.text) for segment in self._requested)
                is_live = self._streaming and not self._requested
                self._requested.append(self._request(self._left.popleft(), is_live, letters / LETTERS_PER_SECOND))
            yield self._requested[0]
            self._requested.popleft()

    def _audio_of(self, segment: Segment) -> Iterator[NDArray[np.float32]]:
        """Chunks of a segment; a runaway is spoken once more, if it may be and has not been played.

        Where it is handed out once it is whole, an empty chunk comes for each that is made: whoever waits sees that it
        goes on.
        """
        if self._streaming:
            if not segment.was_live and segment.stream.is_over and segment.has_run_away:
                self._speak_again(segment)
            segment.stream.go_live()
            yield from segment.stream
            return
        chunks: list[NDArray[np.float32]] = []
        yield from _collected(segment.stream, chunks)
        if segment.has_run_away:
            # A second runaway is no better than the first, and reports it in its finish reason.
            self._speak_again(segment)
            chunks.clear()
            yield from _collected(segment.stream, chunks)
        yield from chunks

    def _speak_again(self, segment: Segment) -> None:
        segment.stream.close()
        segment.stream = self._request(segment.request, self._streaming, needed_in_seconds=0.0).stream

    def _request(self, request: TakeRequest, is_live: bool, needed_in_seconds: float | None = None) -> Segment:
        stream = self._engine.submit(
            request,
            is_live=is_live,
            cancelled=self._cancelled,
            needed_in_seconds=needed_in_seconds,
            # Only the first segment has no deadline of its own, and only it may be refused.
            bypass_admission=needed_in_seconds is not None,
            client=self._client,
        )
        return Segment(request, stream, is_live)


def _collected(stream: TakeStream, chunks: list[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
    """Add the stream's chunks to a list; yields an empty one for each."""
    for chunk in stream:
        chunks.append(chunk)
        yield np.zeros(0, dtype=np.float32)
