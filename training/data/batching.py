"""Which clips go into which step: a function of the seed alone.

An epoch has every clip once; of several speakers, as many as `balance.py` says. They are shuffled and put into
micro-batches of bounded size: packed into the last few that have room, or sorted by length within windows of a few
steps and cut. A step is a fixed list of micro-batches that the workers divide among themselves, so the number of
workers changes who computes a micro-batch, and never which ones are computed.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from training.data.balance import clips_of_epoch
from training.data.example import TrainingBatch, collate, pack
from training.data.mishearing import misheard
from training.data.training_set import ClipUse, TrainingSet
from training.job import Batching

# A larger window means less padding, but batches of similar lengths next to each other.
WINDOW_STEPS = 8
# Micro-batches that a clip may still be packed into; more waste less room, and take longer to search.
MAX_OPEN = 16


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """How steps are made of clips; see the fields of the same names in `FineTuneJob`.

    Attributes:
        micro_batches: per step.
        micro_batch_tokens: positions in a micro-batch, padding included; a longer clip gets one of its own.
        max_tokens: limit of an example, including its reference if it has one.
        in_context_ratio: share of examples that continue a reference, which is of the same style.
        batching: how clips share a micro-batch.
        misheard_share: of the codes that the talker reads, see `misheard`.
    """

    micro_batches: int
    micro_batch_tokens: int
    max_tokens: int
    in_context_ratio: float = 0.0
    batching: Batching = "packed"
    misheard_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """The input of one forward pass.

    Attributes:
        uses: its examples.
        seed: of the random choices made within it.
        weight: 1, or 0 for a filler that only keeps a worker in step with the others.
    """

    uses: tuple[ClipUse, ...]
    seed: int
    weight: int = 1


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """One optimizer step over all workers.

    Attributes:
        epoch: counted from 0.
        micro_batches: of all workers together, at least one.
        num_clips: over all workers.
        num_frames: over all workers; the losses are divided by it.
    """

    epoch: int
    micro_batches: tuple[MicroBatch, ...]
    num_clips: int
    num_frames: int

    def share_of(self, rank: int, world_size: int) -> list[MicroBatch]:
        """A worker's micro-batches; the same number for all, because the others would wait for a worker with fewer."""
        num_rounds = -(-len(self.micro_batches) // world_size)
        mine = list(self.micro_batches[rank::world_size])
        first = self.micro_batches[0]
        spare = MicroBatch(uses=first.uses[:1], seed=first.seed, weight=0)
        return mine + [spare] * (num_rounds - len(mine))


class BatchPlan:
    """All steps of a run."""

    def __init__(
        self, training_set: TrainingSet, shape: BatchShape, *, seed: int, num_epochs: int, num_steps: int | None = None
    ) -> None:
        """Plan whole epochs, or exactly `num_steps` over as many epochs as needed."""
        self._training_set, self._shape, self._seed = training_set, shape, seed
        self._epochs: list[list[StepPlan]] = []
        self._ends: list[int] = []
        for _ in range(1 if num_steps is not None else num_epochs):
            self._plan_next()
        self.num_steps = self._ends[-1] if num_steps is None else num_steps

    @property
    def steps_per_epoch(self) -> int:
        """Steps in the first epoch; others differ by a few when layouts are mixed."""
        return len(self._epochs[0])

    def step(self, index: int) -> StepPlan:
        """What step `index`, counted from 0, trains on."""
        self._plan_until(index)
        epoch = bisect_right(self._ends, index)
        return self._epochs[epoch][index - (self._ends[epoch - 1] if epoch else 0)]

    def ends_epoch(self, index: int) -> bool:
        """Whether step `index` is the last of its epoch."""
        self._plan_until(index)
        return index + 1 in self._ends

    def collate(self, micro_batch: MicroBatch) -> TrainingBatch:
        """Build a micro-batch's tensors."""
        examples = [self._training_set.example(use) for use in micro_batch.uses]
        batch = pack(examples) if self._shape.batching == "packed" else collate(examples)
        # Not with the generator of the loss: what is predicted must not depend on what is misheard.
        random = torch.Generator().manual_seed(_derive_seed(micro_batch.seed, "misheard"))
        return misheard(batch, self._shape.misheard_share, random)

    def num_tokens(self, micro_batch: MicroBatch) -> int:
        """Positions that are computed for a micro-batch, padding included."""
        lengths = [self._training_set.num_tokens(use) for use in micro_batch.uses]
        return sum(lengths) if self._shape.batching == "packed" else max(lengths) * len(lengths)

    def _plan_until(self, index: int) -> None:
        """Plan the epochs up to a step, on demand, so that a long run starts at once."""
        while self._ends[-1] <= index:
            self._plan_next()

    def _plan_next(self) -> None:
        self._epochs.append(self._plan_epoch(len(self._epochs)))
        self._ends.append((self._ends[-1] if self._ends else 0) + len(self._epochs[-1]))

    def _plan_epoch(self, epoch: int) -> list[StepPlan]:
        draw = random.Random(f"{self._seed}/{epoch}")
        uses = self._choose_layouts(epoch, draw)
        draw.shuffle(uses)
        lengths = {use: self._training_set.num_tokens(use) for use in uses}
        batches = self._pack(uses, lengths) if self._shape.batching == "packed" else self._cut(uses, lengths)
        draw.shuffle(batches)
        num_steps = -(-len(batches) // self._shape.micro_batches)
        # Spread evenly: a last step with one micro-batch would weigh as much as a full one.
        return [self._step(epoch, number, batches[number::num_steps]) for number in range(num_steps)]

    def _choose_layouts(self, epoch: int, draw: random.Random) -> list[ClipUse]:
        training_set, shape = self._training_set, self._shape
        frames = [clip.num_frames for clip in training_set.clips]
        uses = []
        for clip in clips_of_epoch(training_set.clips_by_speaker, frames, seed=self._seed, epoch=epoch):
            use = ClipUse(clip=clip)
            # Drawn for every clip, so that adding a clip does not change the layout of the others.
            wants_reference = draw.random() < shape.in_context_ratio
            offset = draw.randrange(1, len(frames)) if len(frames) > 1 else 0
            peers = training_set.peers[clip]
            if wants_reference and len(peers) > 1:
                place = bisect_left(peers, clip) + 1 + (offset - 1) % (len(peers) - 1)
                paired = ClipUse(clip=clip, reference=peers[place % len(peers)])
                use = paired if self._training_set.num_tokens(paired) <= shape.max_tokens else use
            uses.append(use)
        return uses

    def _pack(self, uses: list[ClipUse], lengths: dict[ClipUse, int]) -> list[list[ClipUse]]:
        """Micro-batches whose clips together stay within the budget: first fit."""
        budget = self._shape.micro_batch_tokens
        batches: list[list[ClipUse]] = []
        filled: list[int] = []
        for use in uses:
            newest = range(max(0, len(batches) - MAX_OPEN), len(batches))
            place = next((place for place in newest if filled[place] + lengths[use] <= budget), None)
            if place is None:
                place = len(batches)
                batches.append([])
                filled.append(0)
            batches[place].append(use)
            filled[place] += lengths[use]
        return batches

    def _cut(self, uses: list[ClipUse], lengths: dict[ClipUse, int]) -> list[list[ClipUse]]:
        """Micro-batches whose padded size stays within the budget."""
        budget = self._shape.micro_batch_tokens
        ordered = self._sort_in_windows(uses, lengths) if self._shape.batching == "bucketed" else uses
        batches: list[list[ClipUse]] = []
        longest = 0
        for use in ordered:
            longest = max(longest, lengths[use])
            if batches and (len(batches[-1]) + 1) * longest <= budget:
                batches[-1].append(use)
            else:
                batches.append([use])
                longest = lengths[use]
        return batches

    def _sort_in_windows(self, uses: list[ClipUse], lengths: dict[ClipUse, int]) -> list[ClipUse]:
        mean_rows = sum(lengths.values()) / len(lengths)
        rows_per_step = self._shape.micro_batch_tokens * self._shape.micro_batches
        window = max(2, round(WINDOW_STEPS * rows_per_step / mean_rows))
        ordered: list[ClipUse] = []
        for begin in range(0, len(uses), window):
            ordered += sorted(uses[begin : begin + window], key=lambda use: lengths[use])
        return ordered

    def _step(self, epoch: int, number: int, batches: Sequence[Sequence[ClipUse]]) -> StepPlan:
        clips = self._training_set.clips
        micro_batches = tuple(
            MicroBatch(uses=tuple(uses), seed=_derive_seed(self._seed, epoch, number, place))
            for place, uses in enumerate(batches)
        )
        uses = [use for micro_batch in micro_batches for use in micro_batch.uses]
        return StepPlan(
            epoch=epoch,
            micro_batches=micro_batches,
            num_clips=len(uses),
            num_frames=sum(clips[use.clip].num_frames for use in uses),
        )


def generator_of(micro_batch: MicroBatch) -> torch.Generator:
    """The generator of a micro-batch's random choices, the same on every worker."""
    return torch.Generator().manual_seed(micro_batch.seed)


def _derive_seed(*parts: int | str) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
