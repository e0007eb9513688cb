# Shape letters: B batch, T step, F codec frame, Q codebook.
"""The talker's input sequence as ids, position by position, before it is embedded.

Prompts and training examples are both such sequences, so training and generation share the code that lays them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

NOTHING = -1
"""Marks a channel that is empty at a position."""


@dataclass(frozen=True, kw_only=True)
class TalkerInput:
    """Ids per position; every tensor may have leading batch axes.

    Attributes:
        text_ids: (..., T) text token or NOTHING.
        codec_ids: (..., T) id in the talker's codec vocabulary (codebook 0, control or speaker row) or NOTHING.
        residual_codes: (..., T, Q-1) codebooks 1.. of a frame, NOTHING at positions without a frame.
        is_speaker: (..., T) true where the speaker embedding is added.
    """

    text_ids: Tensor
    codec_ids: Tensor
    residual_codes: Tensor
    is_speaker: Tensor

    def __len__(self) -> int:
        return int(self.text_ids.shape[-1])

    @property
    def is_frame(self) -> Tensor:
        """(..., T) true at positions that hold a codec frame."""
        return self.residual_codes[..., 0] >= 0

    def with_first_codebook(self) -> Tensor:
        """(..., T, Q): codec ids and residual codes side by side; meaningful for frames only."""
        return torch.cat((self.codec_ids.unsqueeze(-1), self.residual_codes), dim=-1)

    def to(self, device: torch.device | str) -> TalkerInput:
        """The same sequence on another device."""
        return replace(self, **{name: tensor.to(device) for name, tensor in vars(self).items()})

    def batched(self) -> TalkerInput:
        """The same sequence with a batch axis of one."""
        return replace(self, **{name: tensor.unsqueeze(0) for name, tensor in vars(self).items()})


def id_positions(text_ids: Sequence[int], codec_ids: Sequence[int], num_codebooks: int) -> TalkerInput:
    """Positions that hold a text id, a codec id or both; NOTHING leaves a channel empty."""
    assert len(text_ids) == len(codec_ids)
    steps = len(text_ids)
    return TalkerInput(
        text_ids=torch.tensor(text_ids, dtype=torch.long),
        codec_ids=torch.tensor(codec_ids, dtype=torch.long),
        residual_codes=torch.full((steps, num_codebooks - 1), NOTHING, dtype=torch.long),
        is_speaker=torch.zeros(steps, dtype=torch.bool),
    )


def speaker_position(text_id: int, num_codebooks: int) -> TalkerInput:
    """The position that the speaker embedding is added to."""
    return replace(id_positions([text_id], [NOTHING], num_codebooks), is_speaker=torch.ones(1, dtype=torch.bool))


def frame_positions(codes_FQ: Tensor, text_ids: Sequence[int]) -> TalkerInput:
    """One position per codec frame, with the text token that accompanies it."""
    assert len(text_ids) == codes_FQ.shape[0]
    codes_FQ = codes_FQ.to(dtype=torch.long, device="cpu")
    return TalkerInput(
        text_ids=torch.tensor(text_ids, dtype=torch.long),
        codec_ids=codes_FQ[:, 0],
        residual_codes=codes_FQ[:, 1:],
        is_speaker=torch.zeros(len(text_ids), dtype=torch.bool),
    )


def concatenate(parts: Sequence[TalkerInput]) -> TalkerInput:
    """Join unbatched sequences in time."""
    joined = {name: torch.cat([vars(part)[name] for part in parts]) for name in vars(parts[0])}
    return TalkerInput(**joined)


def pad_and_stack(sequences: Sequence[TalkerInput]) -> TalkerInput:
    """Stack unbatched sequences of different lengths, padded at the end with empty positions."""
    longest = max(map(len, sequences))
    num_codebooks = sequences[0].residual_codes.shape[-1] + 1
    padded = []
    for sequence in sequences:
        missing = longest - len(sequence)
        padded.append(concatenate([sequence, id_positions([NOTHING] * missing, [NOTHING] * missing, num_codebooks)]))
    return TalkerInput(**{name: torch.stack([vars(one)[name] for one in padded]) for name in vars(padded[0])})
