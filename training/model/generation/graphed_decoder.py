# Shape letters: N chosen slot, F codec frame, Q codebook, S sample.
"""The codec's steps as captured graphs: the next frames of any slots, in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.codec.stream_state import DecoderState
from training.model.generation.graphed_calls import GraphedCalls, Recorder

MAX_FRAMES = 16
"""Of one take in a call that has a graph: the longest chunk that an engine asks for."""

_USUAL_FRAMES = (1, 2, 4, 8, 12, 16)
"""Chunks in the middle of a take; others occur at its end, and where takes fall into step."""


class DecodeKey(NamedTuple):
    """A graph of a codec step. Exact, because padding a row with frames would change its stream."""

    num_slots: int
    num_frames: int


@dataclass(frozen=True, kw_only=True)
class _Fixed:
    """What a graph reads and writes: slots (N,), codes (N, F, Q) and the samples (N, S) of these frames."""

    slots_N: Tensor
    codes_NFQ: Tensor
    waveform_NS: Tensor


class GraphedDecoder:
    """Decodes codes of some slots of a state, by a graph of as many slots and frames where one was captured.

    Gathering the slots' states and putting them back is part of the graph, so that one serves any slots.
    """

    def __init__(self, codec: SpeechTokenizer, state: DecoderState, recorder: Recorder | None) -> None:
        """For a state of all slots, which stays where it is; without a recorder nothing is ever captured."""
        self._codec, self._state = codec, state
        self._graphs = GraphedCalls.on(state.positions_B.device) if recorder is None else GraphedCalls(recorder)
        self._fixed: dict[DecodeKey, _Fixed] = {}

    @property
    def num_graph_bytes(self) -> int:
        """Device memory of the captured graphs."""
        return self._graphs.num_bytes

    def usual_graphs(self, max_frames_per_call: int) -> list[DecodeKey]:
        """The graphs that takes need, those needed most first, of at most so many frames in all.

        On processors none: a call takes long enough there, and those that are missed are captured while nobody speaks.
        """
        if not self._graphs.needs_equal_work:
            return []
        others = [frames for frames in range(1, MAX_FRAMES + 1) if frames not in _USUAL_FRAMES]
        counts = range(1, self._state.batch_size + 1)
        keys = [
            DecodeKey(count, frames) for lengths in (_USUAL_FRAMES, others) for frames in lengths for count in counts
        ]
        return [key for key in keys if key.num_slots * key.num_frames <= max_frames_per_call]

    def missed_graphs(self) -> list[DecodeKey]:
        """The graphs that calls would have needed since, but were run without, those missed most first."""
        return [key for key, _ in self._graphs.missed.most_common() if isinstance(key, DecodeKey)]

    @torch.inference_mode()
    def capture(self, key: DecodeKey) -> None:
        """Capture a graph, while no slot is in use: their states are advanced by the warm-up."""
        fixed = self._fixed_of(key)
        fixed.slots_N.copy_(torch.arange(key.num_slots))
        fixed.codes_NFQ.zero_()
        memory = (fixed.slots_N, fixed.codes_NFQ, fixed.waveform_NS, *self._state.tensors)
        with _constant(self._codec):
            self._graphs.capture(key, lambda: self._run(fixed), memory)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], codes_NFQ: Tensor) -> Tensor | None:
        """Waveform (N, S) of the next frames of these slots; valid until the next call.

        None, and nothing is done, where there is no graph, unless those are what the device is made for.
        """
        key = DecodeKey(len(slots), codes_NFQ.shape[1])
        if not (self._graphs.needs_equal_work or self._graphs.has(key)):
            self._graphs.note_missed(key)
            return None
        fixed = self._fixed_of(key)
        fixed.slots_N.copy_(torch.tensor(list(slots)))
        fixed.codes_NFQ.copy_(codes_NFQ)
        self._graphs.run(key, lambda: self._run(fixed))
        return fixed.waveform_NS

    def _run(self, fixed: _Fixed) -> None:
        state = self._state.select(fixed.slots_N)
        fixed.waveform_NS.copy_(self._codec.decode_step(fixed.codes_NFQ, state))
        self._state.put(fixed.slots_N, state)

    def _fixed_of(self, key: DecodeKey) -> _Fixed:
        if key not in self._fixed:
            config, device = self._codec.config, self._state.positions_B.device
            num_codebooks = config.decoder.num_quantizers
            num_samples = key.num_frames * config.decode_upsample_rate
            self._fixed[key] = _Fixed(
                slots_N=torch.zeros(key.num_slots, dtype=torch.long, device=device),
                codes_NFQ=torch.zeros(key.num_slots, key.num_frames, num_codebooks, dtype=torch.long, device=device),
                waveform_NS=torch.zeros(key.num_slots, num_samples, device=device),
            )
        return self._fixed[key]


@contextmanager
def _constant(codec: SpeechTokenizer) -> Iterator[None]:
    """Let its weights be constants meanwhile: what may be trained is none."""
    trained = [parameter for parameter in codec.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
