# Shape letters: B slot, F codec frame, Q codebook, S sample.
"""A running batch of takes: codes from the frame loop, audio from one batched decoder, slot by slot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.model.codec.stream_state import DecoderState
from training.model.generation.device_streams import DeviceStream
from training.model.generation.frame_loop import FrameLoop, FrameRequest, FrameStep, GraphKey
from training.model.generation.graphed_calls import Recorder
from training.model.generation.graphed_decoder import DecodeKey, GraphedDecoder
from training.model.generation.primed_decoder import ReferenceDecoder, ReferenceDecoders
from training.model.generation.take_request import TakeRequest, VoicePrompt, lay_out
from training.model.voice_model import VoiceModel

MAX_FRAMES_PER_CALL = 128
"""Frames of all takes in one call of the decoder: bounds its memory."""

MAX_GRAPH_BYTES, MAX_TRACE_BYTES = 2**30, 2**27
"""Memory for captured graphs on a GPU, and on a processor. What is beyond it is launched operation by operation."""

_logger = logging.getLogger(__name__)


class TakeBatch:
    """Decodes up to `num_slots` takes at once; a take does not depend on the others in the batch.

    The caller decides when a slot's frames become audio: `step` makes a frame of every take, `decode` turns frames of
    some slots into samples with one call of the network. One thread may call `decode` while another makes frames, as
    long as they have no slot in common; apart from that it is not thread-safe. On a GPU each has a stream of its own.
    """

    def __init__(
        self,
        model: VoiceModel,
        *,
        num_slots: int = 8,
        cache_length: int = 2048,
        consume: bool = True,
        graph_recorders: tuple[Recorder, Recorder] | None = None,
    ) -> None:
        """Pack the model for decoding.

        Args:
            model: the checkpoint.
            num_slots: takes at once.
            cache_length: tokens per slot, prompt and frames together.
            consume: empty the talker's layers as they are packed, see `FrameLoop`; one that matches timbre keeps them.
            graph_recorders: capture the talker's and the codec's calls; None for those of the device, if it has any.
        """
        self.model, self.num_slots = model, num_slots
        talker_recorder, codec_recorder = graph_recorders or (None, None)
        self.loop = FrameLoop(
            model.talker,
            model.config,
            precision=model.precision,
            num_slots=num_slots,
            cache_length=cache_length,
            guided=model.is_guided,
            # What a voice's timbre lacks is found by the talker as it was loaded.
            consume=consume and not model.matches_timbre,
            graph_recorder=talker_recorder,
        )
        with torch.inference_mode():
            self._decoders = model.speech_tokenizer.start_stream(num_slots)
        self._graphed_decoder = GraphedDecoder(model.speech_tokenizer, self._decoders, codec_recorder)
        self._talker_stream, self._codec_stream = DeviceStream(model.device), DeviceStream(model.device)
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
            "graphs": self.num_graph_bytes,
        }

    @property
    def num_graph_bytes(self) -> int:
        """Memory of captured graphs."""
        return self.loop.num_graph_bytes + self._graphed_decoder.num_graph_bytes

    def usual_graphs(self) -> list[GraphKey | DecodeKey]:
        """What `capture` should capture before the first take; empty where there are no graphs."""
        return [*self.loop.usual_graphs(), *self._graphed_decoder.usual_graphs(MAX_FRAMES_PER_CALL)]

    def missed_graphs(self) -> list[GraphKey | DecodeKey]:
        """What takes have needed since, and was launched kernel by kernel: those with settings of their own."""
        return [*self.loop.missed_graphs(), *self._graphed_decoder.missed_graphs()]

    def later_graphs(self) -> list[GraphKey | DecodeKey]:
        """What is worth capturing while there is no take: what was missed, then what takes would miss."""
        missed = self.missed_graphs()
        return [*missed, *(key for key in self.loop.later_graphs() if key not in missed)]

    def capture(
        self,
        keys: Sequence[GraphKey | DecodeKey],
        report: Callable[[int, int], object] | None = None,
        *,
        max_bytes: int | None = None,
    ) -> int:
        """Capture graphs while there is no take, as long as they fit; returns how many of them there are then.

        Args:
            keys: of the graphs, the most useful first.
            report: called with the number captured, and of all, after each.
            max_bytes: device memory for all graphs; None for the usual, or half of what is free if that is less.
        """
        if max_bytes is None:
            max_bytes = self._graph_room()
        for number, key in enumerate(keys):
            if self.num_graph_bytes >= max_bytes:
                _logger.info("graphs take %.1f GiB: %d are left out", self.num_graph_bytes / 2**30, len(keys) - number)
                return number
            try:
                if isinstance(key, DecodeKey):
                    with self._codec_stream.chosen():
                        self._graphed_decoder.capture(key)
                else:
                    with self._talker_stream.chosen():
                        self.loop.capture(key)
            except torch.OutOfMemoryError:
                _logger.warning("no memory for more graphs on the GPU: %d are left out", len(keys) - number)
                return number
            if report is not None:
                report(number + 1, len(keys))
        return len(keys)

    def lay_out(self, request: TakeRequest) -> FrameRequest:
        """Prepare a request for `admit`. Uses no state of the batch, so any thread may call it. Raises PromptError."""
        return lay_out(self.model, request, self.loop.cache_length)

    def admit(self, slot: int, request: FrameRequest, voice: VoicePrompt) -> None:
        """Begin a take in a free slot; its first frame comes with the next step.

        On any error the slot is free again, and the other takes are unaffected.
        """
        try:
            with self._talker_stream.chosen():
                self.loop.admit(slot, request)
            self._start_decoder(slot, voice)
        except BaseException:
            self.release(slot)
            raise

    def release(self, slot: int) -> None:
        """Free a slot at once."""
        self._preparing.pop(slot, None)
        if slot not in self.loop.free_slots:
            with self._talker_stream.chosen():
                self.loop.release(slot)

    def step(self) -> FrameStep:
        """Advance every take by one frame; slots of ended takes are free again, but can still be decoded.

        Its codes are on the CPU. Waiting for them waits for the talker alone, not for what the codec does meanwhile.
        """
        with self._talker_stream.chosen():
            step = self.loop.step()
            return replace(step, codes_BQ=step.codes_BQ.cpu())

    def is_preparing(self, slot: int) -> bool:
        """Whether a slot's decoder is still being primed with a reference; `prepare` continues that."""
        return slot in self._preparing

    def _graph_room(self) -> int:
        if self.model.device.type != "cuda":
            return MAX_TRACE_BYTES
        free_bytes, _ = torch.cuda.mem_get_info(self.model.device)
        return min(MAX_GRAPH_BYTES, self.num_graph_bytes + free_bytes // 2)

    @torch.inference_mode()
    def prepare(self, slot: int) -> bool:
        """Prime a slot's decoder with the next piece of its reference; returns whether it can decode now.

        Without a reference, or with one that is cached, it is ready at once.
        """
        decoder = self._preparing.get(slot)
        if decoder is None:
            return True
        with self._codec_stream.chosen():
            decoder.advance()
        return self._put_if_ready(slot, decoder)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], codes_BFQ: Tensor) -> NDArray[np.float32]:
        """Samples (B, S) of the next frames of some slots, which must be prepared, one row for each of `slots`.

        Slots in ascending order without gaps are decoded where they are; others are copied out and back.
        """
        assert not any(slot in self._preparing for slot in slots)
        with self._codec_stream.chosen():
            samples: NDArray[np.float32] = self._decode(slots, codes_BFQ).float().cpu().numpy()
        return samples

    def _decode(self, slots: Sequence[int], codes_BFQ: Tensor) -> Tensor:
        if (waveform_BS := self._graphed_decoder.decode(slots, codes_BFQ)) is not None:
            return waveform_BS
        if list(slots) == list(range(slots[0], slots[0] + len(slots))):
            return self._decode_step(codes_BFQ, self._decoders.view(slots[0], len(slots)))
        rows = torch.tensor(slots, device=self._decoders.positions_B.device)
        state = self._decoders.select(rows)
        waveform_BS = self._decode_step(codes_BFQ, state)
        self._decoders.put(rows, state)
        return waveform_BS

    def _decode_step(self, codes_BFQ: Tensor, state: DecoderState) -> Tensor:
        return self.model.speech_tokenizer.decode_step(codes_BFQ, state)

    @torch.inference_mode()
    def _start_decoder(self, slot: int, voice: VoicePrompt) -> None:
        with self._codec_stream.chosen():
            decoder = self._references.begin(voice)
        self._preparing[slot] = decoder
        self._put_if_ready(slot, decoder)

    def _put_if_ready(self, slot: int, decoder: ReferenceDecoder) -> bool:
        if decoder.is_ready:
            with self._codec_stream.chosen():
                self._decoders.put(torch.tensor([slot], device=self._decoders.positions_B.device), decoder.state)
            del self._preparing[slot]
        return decoder.is_ready
