# Shape letters: B row, T prompt step, D talker width, Q codebook, V codec vocabulary.
"""The decode loop: a running batch of takes that advances one codec frame at a time.

Takes are admitted and released between frames. Everything a frame needs is in fixed tensors on the device, so that
the two halves of a frame (the talker step, and the code predictor's pass over the codebooks) are fixed
sequences of kernels; on CUDA each is captured once as a graph and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from training.model.config import ModelConfig
from training.model.errors import PromptError
from training.model.generation.adapter import AdaptedRows, Adapter, arrange
from training.model.generation.finish_reason import FinishReason
from training.model.generation.graphed_calls import KV_LENGTH_STEP, GraphedCalls, Recorder, round_up
from training.model.generation.huge_pages import MIN_WEIGHT_BYTES, use_huge_pages
from training.model.generation.residual_decoder import ResidualDecoder
from training.model.generation.sampling import (
    USUAL_PLANS,
    DrawPlan,
    draw,
    first_code_mask,
    guide,
    penalize_repetition,
)
from training.model.generation.slot_state import SlotState
from training.model.generation.step_transformer import StepTransformer
from training.model.generation_defaults import ROWS_OF_GUIDED
from training.model.network.packed_linear import COMPUTE_DTYPE, is_batch_invariant, pack
from training.model.network.talker import Talker
from training.model.precision import Precision
from training.model.prompt.prompt import Prompt
from training.model.sampling_settings import Sampling


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """Classifier-free guidance (Ho & Salimans 2022) of a take.

    Attributes:
        prompt: without text and speaker, as the talker has learnt a share of its speech.
        scale: how far logits are moved away from those after this prompt; 1 leaves them as they are.
    """

    prompt: Prompt
    scale: float


MoveFrame = Callable[[Tensor], Tensor]
"""Makes other codes (Q,) of those that were drawn."""


@dataclass(frozen=True, kw_only=True)
class FrameRequest:
    """One take to decode.

    Attributes:
        prompt: laid-out prompt.
        speaker: speaker embedding (D,), or None when the prompt holds no speaker row.
        sampling: how codes are drawn.
        seed: decides the take.
        max_frames: cap on frames.
        min_frames: the end of speech cannot be drawn before this many.
        adapter: of the voice; None for the model's own weights.
        guidance: in a guided loop, and only there.
        move_frame: what is given out of every frame; the talker goes on from what was drawn. None for that itself.
    """

    prompt: Prompt
    max_frames: int
    speaker: Tensor | None = None
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    min_frames: int = 2
    adapter: Adapter | None = None
    guidance: Guidance | None = None
    move_frame: MoveFrame | None = None


@dataclass(frozen=True, kw_only=True)
class FrameStep:
    """The result of one step of the loop.

    Attributes:
        codes_BQ: codes per slot, valid for the slots in `spoke`.
        spoke: slots with a new frame.
        finished: slots that ended with this step. A slot ends by EOS without a frame, by LENGTH with its last.
    """

    codes_BQ: Tensor
    spoke: tuple[int, ...]
    finished: dict[int, FinishReason]


@dataclass
class _Take:
    """Host-side state of an occupied slot."""

    request: FrameRequest
    generator: torch.Generator
    trailing_SD: Tensor
    positions: list[int]
    num_frames: int = 0


@dataclass(frozen=True, kw_only=True)
class _AdaptedSlots:
    """The slots with adapters, as the calls of a frame take them: for each layer the rows and their adapters.

    Attributes:
        talker: of a step of the talker.
        predictor_start, predictor: of the code predictor's first two steps at once, and of each later one.
    """

    talker: Sequence[AdaptedRows] = ()
    predictor_start: Sequence[AdaptedRows] = ()
    predictor: Sequence[AdaptedRows] = ()


class PredictorKey(NamedTuple):
    """A graph of the code predictor's pass over a frame's codebooks, for the first rows."""

    plan: DrawPlan
    num_rows: int


class TalkerKey(NamedTuple):
    """A graph of the talker's step, for the first rows."""

    plan: DrawPlan
    num_rows: int
    kv_length: int


GraphKey = PredictorKey | TalkerKey


class FrameLoop:
    """Decodes up to `num_slots` takes at once, batch-invariantly: a take's codes do not depend on the other takes.

    They are equal to the last bit in any loop of as many slots, because attention lengths are multiples of
    `KV_LENGTH_STEP`, each take draws among a number of codes that its own settings decide, and matrix products are
    computed for all slots, free ones included, so that their shapes never change (except with batch-invariant kernels).
    In a guided loop a take is two rows of all tensors: one follows its prompt, the other speaks the same frames after
    a prompt without text and speaker, and codes are drawn from both rows' logits. Otherwise a take is one row.
    Takes may have adapters, which are computed take by take. While any does, CUDA graphs are not used for the layers
    that it adapts: which adapters a graph reads would be a part of it.
    """

    def __init__(
        self,
        talker: Talker,
        config: ModelConfig,
        *,
        precision: Precision = "fp32",
        num_slots: int = 1,
        cache_length: int = 4096,
        guided: bool = False,
        consume: bool = False,
        graph_recorder: Recorder | None = None,
    ) -> None:
        """Pack the talker's weights and allocate the caches.

        Args:
            talker: the weights; on the device to decode on.
            config: the checkpoint's configuration.
            precision: kernels; int8 on CPU only.
            num_slots: takes decoded at once.
            cache_length: steps per slot, prompt and frames together.
            guided: whether requests have guidance.
            consume: empty the talker's layers as they are packed, to hold the weights only once. The talker
                can embed prompts afterwards, but neither train nor score.
            graph_recorder: captures the parts of a frame; None for that of the device, if it has one.
        """
        self.config, self.talker, self.precision = config, talker, precision
        self.num_slots, self.cache_length = num_slots, min(cache_length, config.talker.max_position_embeddings)
        self._rows_per_take = ROWS_OF_GUIDED if guided else 1
        num_rows = self._num_rows = num_slots * self._rows_per_take
        self.dtype, self.device = COMPUTE_DTYPE[precision], talker.codec_head.weight.device
        num_codebooks = config.talker.num_code_groups
        self._graphs = GraphedCalls.on(self.device) if graph_recorder is None else GraphedCalls(graph_recorder)
        self._is_capturing = False
        # With a single row and no graphs of the talker, neither masks nor rounding are needed.
        self._is_alone = num_rows == 1 and not self._graphs.needs_equal_work
        self._kv_length_step = 1 if self._is_alone else KV_LENGTH_STEP
        self._codec_head = pack([talker.codec_head], precision, num_rows)
        self._main = StepTransformer(
            talker.model, config.talker, precision=precision, num_slots=num_rows,
            cache_length=round_up(self.cache_length, self._kv_length_step), consume=consume,
        )  # fmt: skip
        self._residual = ResidualDecoder(talker, config, precision=precision, num_rows=num_rows, consume=consume)
        if self.device.type == "cpu" and self.num_weight_bytes >= MIN_WEIGHT_BYTES:
            use_huge_pages()
        self._state = SlotState.allocate(config, num_rows, self.dtype, self.device)
        self._drawn_BQ = torch.zeros(num_slots, num_codebooks)
        self._forbidden_V = first_code_mask(config.talker, self.device)
        with torch.inference_mode():
            pad_id = torch.tensor([config.tts_pad_token_id], device=self.device)
            self._pad_1D = talker.embed_text(pad_id).to(self.dtype)
        self._skips_empty_slots = (
            self.device.type == "cpu"
            and not self._graphs.needs_equal_work
            and is_batch_invariant([self._codec_head])
            and self._main.is_batch_invariant
            and self._residual.is_batch_invariant
        )
        self._takes: list[_Take | None] = [None] * num_slots
        self._adapted = _AdaptedSlots()
        self._codes_unread = False

    def _computed_slots(self) -> SlotState:
        """The slots to compute a frame for: all, or those up to the last take if kernels are batch-invariant."""
        if not self._skips_empty_slots:
            return self._state
        num_slots = 1 + max(slot for slot, take in enumerate(self._takes) if take is not None)
        return self._state.view(0, num_slots * self._rows_per_take)

    def _rows(self, slot: int) -> range:
        return range(slot * self._rows_per_take, (slot + 1) * self._rows_per_take)

    @property
    def num_weight_bytes(self) -> int:
        """Of the packed layers, without what the talker still holds."""
        return self._main.num_weight_bytes + self._residual.num_weight_bytes

    @property
    def num_cache_bytes(self) -> int:
        """Of keys and values of all slots, which are allocated once."""
        return sum(cache.nbytes for cache in (*self._main.caches, *self._residual.caches))

    @property
    def free_slots(self) -> tuple[int, ...]:
        """Slots that hold no take."""
        return tuple(slot for slot, take in enumerate(self._takes) if take is None)

    def usual_graphs(self) -> list[GraphKey]:
        """The graphs that takes with the checkpoints' own settings need, those needed most first.

        On processors only that of the code predictor, which is most of a frame, for one take: others take longer to
        capture than they save while nobody speaks at length.
        """
        if not self._graphs.enabled:
            return []
        if not self._graphs.needs_equal_work:
            return [PredictorKey(USUAL_PLANS[0], self._rows_per_take if self._skips_empty_slots else self._num_rows)]
        lengths = range(self._kv_length_step, round_up(self.cache_length, self._kv_length_step) + 1, KV_LENGTH_STEP)
        talkers = [TalkerKey(plan, self._num_rows, length) for length in lengths for plan in USUAL_PLANS]
        return [*(PredictorKey(plan, self._num_rows) for plan in USUAL_PLANS), *talkers]

    def later_graphs(self) -> list[GraphKey]:
        """On processors those for any number of takes beside each other that were not captured yet."""
        if not self._graphs.enabled or self._graphs.needs_equal_work:
            return []
        counts = range(1, self.num_slots + 1) if self._skips_empty_slots else (self.num_slots,)
        keys = [PredictorKey(USUAL_PLANS[0], count * self._rows_per_take) for count in counts]
        return [key for key in keys if self._graphs.lacks(key)]

    def missed_graphs(self) -> list[GraphKey]:
        """The graphs that takes would have needed since, but were run without, those missed most first."""
        return [key for key, _ in self._graphs.missed.most_common() if isinstance(key, PredictorKey | TalkerKey)]

    @property
    def num_graph_bytes(self) -> int:
        """Device memory of the captured graphs."""
        return self._graphs.num_bytes

    @torch.inference_mode()
    def capture(self, key: GraphKey) -> None:
        """Capture a graph, while no slot holds a take: what the warm-up leaves in them is overwritten by the next."""
        assert len(self.free_slots) == self.num_slots
        self._codes_unread = False
        is_talker = isinstance(key, TalkerKey)
        caches = self._main.caches if is_talker else self._residual.caches

        def call() -> None:
            """With views of the state that are made by the call itself."""
            state = self._state.view(0, key.num_rows)
            with (state.first_draw if is_talker else state.rest_draw).planned(key.plan):
                if isinstance(key, TalkerKey):
                    self._talker_step(state, key.kv_length)
                else:
                    self._predict_residual(state)

        self._is_capturing = True
        try:
            self._graphs.capture(key, call, (*self._state.tensors, *caches))
        finally:
            self._is_capturing = False

    @torch.inference_mode()
    def admit(self, slot: int, request: FrameRequest) -> None:
        """Prefill a take's prompt into a free slot; its first frame comes with the next step.

        Raises:
            PromptError: prompt and cap together do not fit the cache.
        """
        assert self._takes[slot] is None
        assert (request.guidance is not None) == (self._rows_per_take == ROWS_OF_GUIDED)
        prompts = [request.prompt] if request.guidance is None else [request.prompt, request.guidance.prompt]
        steps = max(len(prompt.inputs) for prompt in prompts)
        if steps + request.max_frames > self.cache_length:
            raise PromptError(
                f"Prompt and speech together would take {steps + request.max_frames} steps, and there is room for "
                f"{self.cache_length}. Use a shorter text or a shorter reference."
            )
        self._advance()
        trailing_ids = torch.tensor(request.prompt.trailing_text_ids, dtype=torch.long, device=self.device)
        take = _Take(
            request=request,
            generator=torch.Generator().manual_seed(request.seed),
            trailing_SD=self.talker.embed_text(trailing_ids).to(self.dtype),
            positions=[len(prompt.inputs) for prompt in prompts],
        )
        self._occupy(slot, take)
        rows = self._rows(slot)
        for row, prompt in zip(rows, prompts, strict=True):
            self._state.hidden_BD[row] = self._prefill(row, prompt, request)
        alone = self._skips_empty_slots
        state = self._state.view(rows[0], len(rows)) if alone else self._state
        next_code = self._draw_next(self._codec_head(state.hidden_BD).float(), state)[0 if alone else rows[0]]
        for row in rows:
            self._state.next_code_B[row] = next_code
            self._state.used_BV[row, next_code] = True

    def _prefill(self, row: int, prompt: Prompt, request: FrameRequest) -> Tensor:
        """The hidden state behind a prompt, (D,), with its keys and values in the row's cache."""
        speaker_BD = None if request.speaker is None else request.speaker.to(self.device).view(1, -1)
        x_TD = self.talker.embed_input(prompt.inputs.batched().to(self.device), speaker_BD)[0].to(self.dtype)
        adapted = arrange({0: request.adapter.talker}, len(x_TD)) if request.adapter is not None else ()
        return self._main.prefill(x_TD, row, adapted)[-1]

    def _occupy(self, slot: int, take: _Take) -> None:
        state, request, sampling = self._state, take.request, take.request.sampling
        self._takes[slot] = take
        drawn_Q = self._drawn_BQ[slot].uniform_(generator=take.generator).to(self.device)
        for row, position in zip(self._rows(slot), take.positions, strict=True):
            state.active_B[row] = 1
            state.positions_B[row] = position
            state.used_BV[row] = False
            state.penalty_B[row] = sampling.repetition_penalty
            state.no_end_B[row] = request.min_frames > 0
            state.beside_BD[row] = self._pad_1D[0]
            state.uniform_BQ[row] = drawn_Q
            state.guidance_B[row] = 1.0 if request.guidance is None else request.guidance.scale
            state.first_draw.set_slot(row, sampling.of_first_codebook)
            state.rest_draw.set_slot(row, sampling.of_residual_codebooks)
        self._arrange_adapters()

    def release(self, slot: int) -> None:
        """Free a slot at once, in whatever state its take is."""
        self._takes[slot] = None
        for row in self._rows(slot):
            self._state.active_B[row] = 0
            self._state.positions_B[row] = 0
            self._state.first_draw.set_slot(row, None)
            self._state.rest_draw.set_slot(row, None)
        self._arrange_adapters()

    def _arrange_adapters(self) -> None:
        requests = [(slot, take.request) for slot, take in enumerate(self._takes) if take is not None]
        adapters = [
            (row, request.adapter) for slot, request in requests if request.adapter is not None
            for row in self._rows(slot)
        ]  # fmt: skip
        talkers = {row: adapter.talker for row, adapter in adapters}
        predictors = {row: adapter.code_predictor for row, adapter in adapters}
        self._adapted = _AdaptedSlots(
            talker=arrange(talkers, 1), predictor_start=arrange(predictors, 2), predictor=arrange(predictors, 1)
        )

    @torch.inference_mode()
    def step(self) -> FrameStep:
        """Advance every take by one frame; slots of ended takes are free again when this returns."""
        self._advance()
        end = self.config.talker.codec_eos_token_id
        next_codes = self._state.next_code_B.tolist()[:: self._rows_per_take]
        ended = [slot for slot, take in enumerate(self._takes) if take is not None and next_codes[slot] == end]
        finished = dict.fromkeys(ended, FinishReason.EOS)
        for slot in finished:
            self.release(slot)
        spoke = tuple(slot for slot, take in enumerate(self._takes) if take is not None)
        if spoke:
            state = self._computed_slots()
            count = len(state.active_B)
            key = None if self._adapted.predictor else PredictorKey(state.rest_draw.plan, count)
            self._graphs.run(key, lambda: self._predict_residual(state))
            self._codes_unread = True
        codes_BQ = self._state.codes_BQ[:: self._rows_per_take].clone()
        for slot in spoke:
            take = self._takes[slot]
            assert take is not None
            if take.request.move_frame is not None:
                codes_BQ[slot] = take.request.move_frame(codes_BQ[slot])
            take.num_frames += 1
            if take.num_frames >= take.request.max_frames:
                finished[slot] = FinishReason.LENGTH
                self.release(slot)
        return FrameStep(codes_BQ=codes_BQ, spoke=spoke, finished=finished)

    def _advance(self) -> None:
        """Feed the last frame back to the talker. Put off until needed, so that a frame is out before it."""
        if not self._codes_unread:
            return
        self._codes_unread = False
        kv_length = 1
        for slot, take in enumerate(self._takes):
            if take is None:
                continue
            if len(take.trailing_SD):
                is_over = take.num_frames > len(take.trailing_SD)
                beside_D = self._pad_1D[0] if is_over else take.trailing_SD[take.num_frames - 1]
                self._state.beside_BD[self._rows(slot)[0]] = beside_D
            if take.num_frames == take.request.min_frames:
                for row in self._rows(slot):
                    self._state.no_end_B[row] = False
            self._drawn_BQ[slot].uniform_(generator=take.generator)
            take.positions = [position + 1 for position in take.positions]
            kv_length = max(kv_length, *take.positions)
        if kv_length == 1:
            return  # no take is left
        # One copy for all slots: on a GPU each would cost as much as a small kernel.
        self._state.uniform_BQ.copy_(self._drawn_BQ.repeat_interleave(self._rows_per_take, dim=0))
        kv_length, state = round_up(kv_length, self._kv_length_step), self._computed_slots()
        # A slot alone attends to as many steps as there are, which are others for each frame.
        has_graph = not (self._adapted.talker or self._is_alone)
        key = TalkerKey(state.first_draw.plan, len(state.active_B), kv_length) if has_graph else None
        self._graphs.run(key, lambda: self._talker_step(state, kv_length))

    def _talker_step(self, state: SlotState, kv_length: int) -> None:
        x_BD, main, adapted = state.frame_BD + state.beside_BD, self._main, self._adapted.talker
        alone = self._is_alone
        state.hidden_BD.copy_(
            main.step_together(x_BD, kv_length - 1, adapted)
            if alone
            else main.step(x_BD, state.positions_B, kv_length, adapted)
        )
        state.positions_B.add_(state.active_B)
        next_code_B = self._draw_next(self._codec_head(state.hidden_BD).float(), state)
        state.next_code_B.copy_(next_code_B)
        state.used_BV.scatter_(1, next_code_B.unsqueeze(1), 1)  # not True, which TorchScript lacks

    def _draw_next(self, logits_BV: Tensor, state: SlotState) -> Tensor:
        """Codebook 0 of the next frame, or the end of speech."""
        logits_BV = (
            penalize_repetition(self._guided(logits_BV, state), state.used_BV, state.penalty_B) + self._forbidden_V
        )
        end = self.config.talker.codec_eos_token_id
        logits_BV[:, end] = logits_BV[:, end].masked_fill(state.no_end_B, -torch.inf)
        return draw(logits_BV, state.uniform_BQ[:, 0], state.first_draw)

    def _guided(self, logits_BV: Tensor, state: SlotState) -> Tensor:
        return logits_BV if self._rows_per_take == 1 else guide(logits_BV, state.guidance_B)

    def _predict_residual(self, state: SlotState) -> None:
        """Codebooks 1..Q-1 of the current frame, and what the talker reads of it next."""
        codes_BQ, frame_BD = self._residual.decode(
            state.hidden_BD,
            state.next_code_B,
            lambda logits_BV, codebook: draw(
                self._guided(logits_BV, state), state.uniform_BQ[:, codebook], state.rest_draw
            ),
            first_adapted=self._adapted.predictor_start,
            adapted=self._adapted.predictor,
            # A graph needs views that are made in it.
            keep=not self._is_capturing,
        )
        state.codes_BQ.copy_(codes_BQ)
        state.frame_BD.copy_(frame_BD)
