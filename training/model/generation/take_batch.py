# Shape letters: B slot, F codec frame, Q codebook, S sample.
"""A running batch of takes: codes from the frame loop, audio from one batched decoder, slot by slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.model.codec.stream_state import DecoderState
from training.model.generation.frame_loop import FrameLoop, FrameRequest, FrameStep
from training.model.generation.primed_decoder import ReferenceDecoder, ReferenceDecoders
from training.model.generation.take_request import TakeRequest, VoicePrompt, lay_out
from training.model.voice_model import VoiceModel


class TakeBatch:
    """Decodes up to `num_slots` takes at once; a take does not depend on the others in the batch.

    The caller decides when a slot's frames become audio: `step` makes a frame of every take, `decode` turns frames of
    some slots into samples with one call of the network. Not thread-safe.
    """

    def __init__(
        self, model: VoiceModel, *, num_slots: int = 8, cache_length: int = 2048, consume: bool = True
    ) -> None:
        """Pack the model for decoding; `consume` empties the talker's layers, see `FrameLoop`."""
        self.model, self.num_slots = model, num_slots
        self.loop = FrameLoop(
            model.talker,
            model.config,
            precision=model.precision,
            num_slots=num_slots,
            cache_length=cache_length,
            consume=consume,
        )
        with torch.inference_mode():
            self._decoders = model.speech_tokenizer.start_stream(num_slots)
        self._references = ReferenceDecoders(model.speech_tokenizer)
        self._preparing: dict[int, ReferenceDecoder] = {}

    @property
    def free_slots(self) -> tuple[int, ...]:
        """Slots that a take may be admitted to."""
        return self.loop.free_slots

    def num_bytes(self) -> dict[str, int]:
        """What it holds on the model's device, by owner: weights, keys and values, states of the decoder."""
        model = self.model
        networks = [one for one in (model.talker, model.speaker_encoder, model.speech_tokenizer) if one is not None]
        tensors = [tensor for network in networks for tensor in (*network.parameters(), *network.buffers())]
        in_place = {tensor.data_ptr(): tensor.nbytes for tensor in tensors if not tensor.is_meta}
        preparing = sum(decoder.state.num_bytes for decoder in list(self._preparing.values()))
        return {
            "weights": sum(in_place.values()) + self.loop.num_weight_bytes,
            "kv_caches": self.loop.num_cache_bytes,
            "decoder_states": self._decoders.num_bytes + self._references.num_bytes + preparing,
        }

    def lay_out(self, request: TakeRequest) -> FrameRequest:
        """Prepare a request for `admit`. Uses no state of the batch, so any thread may call it. Raises PromptError."""
        return lay_out(self.model, request, self.loop.cache_length)

    def admit(self, slot: int, request: FrameRequest, voice: VoicePrompt) -> None:
        """Begin a take in a free slot; its first frame comes with the next step.

        On any error the slot is free again, and the other takes are unaffected.
        """
        try:
            self.loop.admit(slot, request)
            self._start_decoder(slot, voice)
        except BaseException:
            self.release(slot)
            raise

    def release(self, slot: int) -> None:
        """Free a slot at once."""
        self._preparing.pop(slot, None)
        if slot not in self.loop.free_slots:
            self.loop.release(slot)

    def step(self) -> FrameStep:
        """Advance every take by one frame; slots of ended takes are free again, but can still be decoded."""
        return self.loop.step()

    def is_preparing(self, slot: int) -> bool:
        """Whether a slot's decoder is still being primed with a reference; `prepare` continues that."""
        return slot in self._preparing

    @torch.inference_mode()
    def prepare(self, slot: int) -> bool:
        """Prime a slot's decoder with the next piece of its reference; returns whether it can decode now.

        Without a reference, or with one that is cached, it is ready at once.
        """
        decoder = self._preparing.get(slot)
        if decoder is None:
            return True
        decoder.advance()
        return self._put_if_ready(slot, decoder)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], codes_BFQ: Tensor) -> NDArray[np.float32]:
        """Samples (B, S) of the next frames of some slots, which must be prepared, one row for each of `slots`.

        Slots in ascending order without gaps are decoded where they are; others are copied out and back.
        """
        assert not any(slot in self._preparing for slot in slots)
        if list(slots) == list(range(slots[0], slots[0] + len(slots))):
            waveform_BS = self._decode_step(codes_BFQ, self._decoders.view(slots[0], len(slots)))
        else:
            rows = torch.tensor(slots, device=self._decoders.positions_B.device)
            state = self._decoders.select(rows)
            waveform_BS = self._decode_step(codes_BFQ, state)
            self._decoders.put(rows, state)
        samples: NDArray[np.float32] = waveform_BS.float().cpu().numpy()
        return samples

    def _decode_step(self, codes_BFQ: Tensor, state: DecoderState) -> Tensor:
        return self.model.speech_tokenizer.decode_step(codes_BFQ, state)

    @torch.inference_mode()
    def _start_decoder(self, slot: int, voice: VoicePrompt) -> None:
        decoder = self._references.begin(voice)
        self._preparing[slot] = decoder
        self._put_if_ready(slot, decoder)

    def _put_if_ready(self, slot: int, decoder: ReferenceDecoder) -> bool:
        if decoder.is_ready:
            self._decoders.put(torch.tensor([slot], device=self._decoders.positions_B.device), decoder.state)
            del self._preparing[slot]
        return decoder.is_ready
