# Shape letters: B batch, T step, F codec frame, Q codebook.
"""Rows: a talker input sequence written as ids, one row per position, before anything is embedded.

Prompts and training examples are both lists of rows, so what a model is trained on and what it is
prompted with come from the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

NOTHING = -1
"""Marks a channel that a row leaves empty."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingRows:
    """Ids per position; every tensor may carry leading batch axes.

    Attributes:
        text_ids: (..., T) text token or NOTHING.
        codec_ids: (..., T) id in the talker's codec vocabulary (codebook 0, control or speaker row) or NOTHING.
        residual_codes: (..., T, Q-1) codebooks 1.. of a frame, NOTHING where the row is no frame.
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
        """(..., T) true where the row holds a codec frame."""
        return self.residual_codes[..., 0] >= 0

    def with_first_codebook(self) -> Tensor:
        """(..., T, Q): codec ids and residual codes side by side; meaningful on frame rows only."""
        return torch.cat((self.codec_ids.unsqueeze(-1), self.residual_codes), dim=-1)

    def to(self, device: torch.device | str) -> EmbeddingRows:
        """The same rows on another device."""
        return replace(self, **{name: tensor.to(device) for name, tensor in vars(self).items()})

    def batched(self) -> EmbeddingRows:
        """The same rows with a batch axis of one."""
        return replace(self, **{name: tensor.unsqueeze(0) for name, tensor in vars(self).items()})


def id_rows(text_ids: Sequence[int], codec_ids: Sequence[int], num_codebooks: int) -> EmbeddingRows:
    """Rows that hold a text id, a codec id or both; NOTHING leaves a channel empty."""
    assert len(text_ids) == len(codec_ids)
    steps = len(text_ids)
    return EmbeddingRows(
        text_ids=torch.tensor(text_ids, dtype=torch.long),
        codec_ids=torch.tensor(codec_ids, dtype=torch.long),
        residual_codes=torch.full((steps, num_codebooks - 1), NOTHING, dtype=torch.long),
        is_speaker=torch.zeros(steps, dtype=torch.bool),
    )


def speaker_row(text_id: int, num_codebooks: int) -> EmbeddingRows:
    """The one row the speaker embedding is added to."""
    row = id_rows([text_id], [NOTHING], num_codebooks)
    return replace(row, is_speaker=torch.ones(1, dtype=torch.bool))


def frame_rows(codes_FQ: Tensor, text_ids: Sequence[int]) -> EmbeddingRows:
    """One row per codec frame, with the text token that runs beside it."""
    assert len(text_ids) == codes_FQ.shape[0]
    codes_FQ = codes_FQ.to(dtype=torch.long, device="cpu")
    return EmbeddingRows(
        text_ids=torch.tensor(text_ids, dtype=torch.long),
        codec_ids=codes_FQ[:, 0],
        residual_codes=codes_FQ[:, 1:],
        is_speaker=torch.zeros(len(text_ids), dtype=torch.bool),
    )


def concatenate(parts: Sequence[EmbeddingRows]) -> EmbeddingRows:
    """Join unbatched rows in time."""
    joined = {name: torch.cat([vars(part)[name] for part in parts]) for name in vars(parts[0])}
    return EmbeddingRows(**joined)


def pad_and_stack(sequences: Sequence[EmbeddingRows]) -> EmbeddingRows:
    """Stack unbatched rows of different lengths, padded at the end with rows that hold nothing."""
    longest = max(len(rows) for rows in sequences)
    num_codebooks = sequences[0].residual_codes.shape[-1] + 1
    padded = []
    for rows in sequences:
        missing = longest - len(rows)
        padded.append(concatenate([rows, id_rows([NOTHING] * missing, [NOTHING] * missing, num_codebooks)]))
    return EmbeddingRows(**{name: torch.stack([vars(rows)[name] for rows in padded]) for name in vars(padded[0])})
