# Shape letters: S sample, F codec frame, Q codebook, D talker width.
"""One take at a time, decoded in the plainest way: what the engine and exported checkpoints are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.serving.engine.running_take import BUFFERED_CHUNK_FRAMES, LIVE_CHUNK_FRAMES
from training.model.codec.stream_state import DecoderState
from training.model.generation.finish_reason import FinishReason
from training.model.generation.frame_loop import FrameLoop, FrameRequest
from training.model.generation.primed_decoder import ReferenceDecoders
from training.model.generation.take_request import TakeRequest, VoicePrompt, lay_out
from training.model.voice_model import VoiceModel


@dataclass(frozen=True, kw_only=True)
class Take:
    """A finished take.

    Attributes:
        waveform: float32 samples (S,) in [-1, 1].
        codes: (F, Q).
        sample_rate: in Hz.
        seed: the seed it was made with.
        finish_reason: why it ended.
        seconds_to_first_audio: from the request to the first chunk.
        wall_seconds: from the request to the last chunk.
    """

    waveform: NDArray[np.float32]
    codes: Tensor
    sample_rate: int
    seed: int
    finish_reason: FinishReason
    seconds_to_first_audio: float
    wall_seconds: float

    @property
    def seconds(self) -> float:
        """Duration of the audio."""
        return len(self.waveform) / self.sample_rate

    @property
    def real_time_factor(self) -> float:
        """Wall time per second of audio; below 1 is faster than listening."""
        return self.wall_seconds / self.seconds if self.seconds else float("inf")


@dataclass
class TakeStream:
    """Iterates over the audio chunks of one take; its fields are final once it is exhausted.

    Closing it early, or `cancelled` turning true, frees the slot before the next frame.
    """

    seed: int
    sample_rate: int
    chunks: Generator[NDArray[np.float32]]
    codes: list[Tensor] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    seconds_to_first_audio: float = 0.0

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return self.chunks

    def close(self) -> None:
        """End the take at once, if it has not ended; not left to the garbage collector, which may come late."""
        self.chunks.close()


class Synthesizer:
    """Speaks one take at a time with a loaded checkpoint."""

    def __init__(self, model: VoiceModel, *, cache_length: int = 4096, consume: bool = True) -> None:
        """Pack the model for decoding; `consume` empties the talker's layers, see `FrameLoop`."""
        self.model = model
        self.loop = FrameLoop(
            model.talker,
            model.config,
            precision=model.precision,
            cache_length=cache_length,
            guided=model.is_guided,
            consume=consume and not model.matches_timbre,
        )
        self._references = ReferenceDecoders(model.speech_tokenizer)

    def speak(self, request: TakeRequest, cancelled: Callable[[], bool] | None = None) -> Take:
        """Speak a whole take.

        A take that hits a cap derived from the text has run away (about one in 200 with the public
        checkpoints); if no seed was asked for it is tried once more with another.

        Raises:
            PromptError: the text cannot be spoken by this checkpoint.
        """
        started = time.perf_counter()
        take = self._collect(self.stream(request, cancelled, BUFFERED_CHUNK_FRAMES), started)
        may_retry = request.seed is None and request.max_frames is None
        if take.finish_reason is FinishReason.LENGTH and may_retry:
            # Whatever comes of it: a second runaway is no better than the first, and says so in its finish reason.
            return self._collect(self.stream(request, cancelled, BUFFERED_CHUNK_FRAMES), started)
        return take

    def stream(
        self,
        request: TakeRequest,
        cancelled: Callable[[], bool] | None = None,
        chunk_frames: Sequence[int] = LIVE_CHUNK_FRAMES,
    ) -> TakeStream:
        """Start a take and return its chunks as they are made.

        The first chunk holds one frame (80 ms), later ones grow. What has been heard cannot be taken back, so a
        stream is never retried.

        Raises:
            PromptError: before the first chunk, when the text cannot be spoken.
        """
        frame_request = self._frame_request(request)
        result = TakeStream(seed=frame_request.seed, sample_rate=self.model.sample_rate, chunks=_no_chunks())
        result.chunks = self._run(frame_request, request.voice, result, cancelled, chunk_frames)
        return result

    def _frame_request(self, request: TakeRequest) -> FrameRequest:
        return lay_out(self.model, request, self.loop.cache_length)

    def _run(
        self,
        request: FrameRequest,
        voice: VoicePrompt,
        result: TakeStream,
        cancelled: Callable[[], bool] | None,
        chunk_frames: Sequence[int],
    ) -> Generator[NDArray[np.float32]]:
        waiting: list[Tensor] = []
        num_chunks, started = 0, time.perf_counter()
        try:
            self.loop.admit(0, request)
            decoder = self._references.state(voice)
            while result.finish_reason is None:
                if cancelled is not None and cancelled():
                    result.finish_reason = FinishReason.CANCELLED
                    break
                step = self.loop.step()
                result.finish_reason = step.finished.get(0)
                if step.spoke:
                    waiting.append(step.codes_BQ)
                    result.codes.append(step.codes_BQ[0])
                if len(waiting) == chunk_frames[min(num_chunks, len(chunk_frames) - 1)]:
                    chunk = self._decode(waiting, decoder)
                    result.seconds_to_first_audio = result.seconds_to_first_audio or time.perf_counter() - started
                    yield chunk
                    waiting, num_chunks = [], num_chunks + 1
            if waiting:
                yield self._decode(waiting, decoder)
        finally:
            if 0 not in self.loop.free_slots:
                self.loop.release(0)
                result.finish_reason = result.finish_reason or FinishReason.CANCELLED

    @torch.inference_mode()
    def _decode(self, frames: list[Tensor], state: DecoderState) -> NDArray[np.float32]:
        waveform_BS = self.model.speech_tokenizer.decode_step(torch.stack(frames, dim=1), state)
        chunk: NDArray[np.float32] = waveform_BS[0].float().cpu().numpy()
        return chunk

    def _collect(self, stream: TakeStream, started: float) -> Take:
        chunks, first = [], 0.0
        for chunk in stream:
            first = first or time.perf_counter() - started
            chunks.append(chunk)
        assert stream.finish_reason is not None
        num_codebooks = self.model.config.talker.num_code_groups
        return Take(
            waveform=np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.float32),
            codes=torch.stack(stream.codes) if stream.codes else torch.zeros(0, num_codebooks, dtype=torch.long),
            sample_rate=stream.sample_rate,
            seed=stream.seed,
            finish_reason=stream.finish_reason,
            seconds_to_first_audio=first,
            wall_seconds=time.perf_counter() - started,
        )


def _no_chunks() -> Generator[NDArray[np.float32]]:
    """What a stream iterates over until it is given its own: the two refer to each other."""
    yield from ()
