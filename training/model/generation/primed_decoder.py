# Shape letters: B batch row, F codec frame, Q codebook.
"""Codec decoders primed with a reference, so that takes continue it without a seam."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.codec.stream_state import DecoderState
from training.model.generation.take_request import VoicePrompt

REFERENCE_CHUNK_FRAMES = 64
"""Frames per call while a decoder is primed; bounds memory, and how long a call takes."""

MAX_REFERENCES = 8
"""Number of primed states to cache. One is a few megabytes at the public sizes."""


class ReferenceDecoders:
    """Primes decoders with references, and caches the last few states.

    The reference's own audio is dropped frame by frame, so nothing is cut by proportion.
    """

    def __init__(self, codec: SpeechTokenizer, max_references: int = MAX_REFERENCES) -> None:
        self._codec, self._most = codec, max_references
        self._finished: OrderedDict[bytes, DecoderState] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Of the states that are cached; may be asked for from any thread."""
        return sum(state.num_bytes for state in list(self._finished.values()))

    def begin(self, voice: VoicePrompt) -> ReferenceDecoder:
        """A decoder to be primed with a voice's reference; ready at once if the state is cached."""
        if not voice.is_in_context:
            return ReferenceDecoder(self._codec, self._codec.start_stream(1), ())
        assert voice.reference_codes is not None
        codes_FQ = voice.reference_codes.to(dtype=torch.int16, device="cpu").contiguous()
        key = hashlib.sha256(codes_FQ.numpy().tobytes()).digest()
        if key in self._finished:
            self._finished.move_to_end(key)
            return ReferenceDecoder(self._codec, self._finished[key].clone(), ())
        pieces = voice.reference_codes.unsqueeze(0).split(REFERENCE_CHUNK_FRAMES, dim=1)
        return ReferenceDecoder(self._codec, self._codec.start_stream(1), pieces, keep=lambda s: self._keep(key, s))

    def state(self, voice: VoicePrompt) -> DecoderState:
        """The decoder behind a voice's reference, at once."""
        decoder = self.begin(voice)
        while not decoder.is_ready:
            decoder.advance()
        return decoder.state

    def _keep(self, key: bytes, state: DecoderState) -> None:
        self._finished[key] = state.clone()
        while len(self._finished) > self._most:
            self._finished.popitem(last=False)


class ReferenceDecoder:
    """One decoder that is primed with a reference piece by piece, so that other takes need not wait for all of it."""

    def __init__(
        self,
        codec: SpeechTokenizer,
        state: DecoderState,
        pieces: Sequence[Tensor],
        keep: Callable[[DecoderState], None] | None = None,
    ) -> None:
        self._codec, self.state, self._pieces, self._keep = codec, state, list(pieces), keep

    @property
    def is_ready(self) -> bool:
        """Whether the whole reference has been decoded."""
        return not self._pieces

    @torch.inference_mode()
    def advance(self) -> None:
        """Decode the next piece."""
        self._codec.decode_step(self._pieces.pop(0), self.state)
        if not self._pieces and self._keep is not None:
            self._keep(self.state)
