"""The pieces of a text on their way through an engine: some asked for ahead, one being heard."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.serving.engine.engine import Engine
from backend.serving.engine.handle import TakeHandle
from backend.serving.speech.sentences import measure
from training.model.decoding.frame_loop import FinishReason
from training.model.decoding.take_request import TakeRequest

LETTERS_PER_SECOND = 14
"""Ordinary speech: how long a piece will roughly be."""


@dataclass
class Piece:
    """One piece that was asked for; `is_heard` if it is played while it is made."""

    request: TakeRequest
    stream: TakeHandle
    is_heard: bool

    @property
    def may_retry(self) -> bool:
        """Whether a runaway may be spoken again: what was asked for with a seed or a cap is what was asked for."""
        return self.request.seed is None and self.request.max_frames is None


class SegmentQueue:
    """Yields pieces in order, the next few asked for before they are needed. Close it when nobody wants the rest."""

    def __init__(
        self,
        engine: Engine,
        requests: list[TakeRequest],
        *,
        streaming: bool,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        """Ask for the first piece. Raises what `Engine.submit` raises."""
        self._engine, self._streaming, self._cancelled = engine, streaming, cancelled
        # A listener needs one more in time; who waits for the whole wants as many as can be spoken at once.
        self._max_asked = 1 + (min(engine.pieces_ahead, 1) if streaming else engine.pieces_ahead)
        self._left = deque(requests[1:])
        self._asked = deque([self._ask(requests[0], is_heard=streaming)])

    def __iter__(self) -> Iterator[Piece]:
        """Each piece in order."""
        while self._asked or self._left:
            while self._left and len(self._asked) < self._max_asked:
                letters = sum(measure(piece.request.text) for piece in self._asked)
                self._asked.append(
                    self._ask(
                        self._left.popleft(),
                        is_heard=self._streaming and not self._asked,
                        needed_in_seconds=letters / LETTERS_PER_SECOND,
                    )
                )
            yield self._asked[0]
            self._asked.popleft()

    def sound_of(self, piece: Piece) -> Iterator[NDArray[np.float32]]:
        """Chunks of a piece; a runaway is spoken once more, if nobody has heard it and it may be."""
        if self._streaming:
            if not piece.is_heard and piece.stream.is_over and self._has_run_away(piece):
                self._speak_again(piece)
            piece.stream.listen()
            yield from piece.stream
            return
        chunks = list(piece.stream)
        if self._has_run_away(piece):
            # Whatever comes of it: a second runaway is no better than the first, and says so in its finish reason.
            self._speak_again(piece)
            chunks = list(piece.stream)
        yield from chunks

    def close(self) -> None:
        """Nobody wants what was asked for."""
        for piece in self._asked:
            piece.stream.close()
        self._asked.clear()
        self._left.clear()

    def _has_run_away(self, piece: Piece) -> bool:
        return piece.may_retry and piece.stream.finish_reason is FinishReason.LENGTH

    def _speak_again(self, piece: Piece) -> None:
        piece.stream.close()
        piece.stream = self._ask(piece.request, is_heard=self._streaming, needed_in_seconds=0.0).stream

    def _ask(self, request: TakeRequest, *, is_heard: bool, needed_in_seconds: float | None = None) -> Piece:
        stream = self._engine.submit(
            request,
            is_heard=is_heard,
            cancelled=self._cancelled,
            needed_in_seconds=needed_in_seconds,
            # Only the first piece has no time of its own, and only it may be turned away.
            is_admitted=needed_in_seconds is not None,
        )
        return Piece(request, stream, is_heard)
