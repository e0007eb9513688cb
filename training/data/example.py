# Shape letters: B batch, T step, N clip, F codec frame, Q codebook, D talker width.
"""Training examples: a prompt with its answer, laid out exactly as generation would see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from training.model.config import ModelConfig
from training.model.network.packing import Packing
from training.model.network.rows import EmbeddingRows, concatenate, frame_rows, pad_and_stack
from training.model.prompt.prompt import Prompt

IGNORED = -100
"""Label of positions that predict nothing; cross-entropy's default."""


@dataclass(frozen=True, kw_only=True)
class TrainingExample:
    """One utterance, teacher-forced.

    Attributes:
        rows: prompt rows, then one row per frame.
        labels_T: codebook 0 that position t is to predict: frame f stands at the position before frame f, the
            end of speech at the last frame. IGNORED elsewhere.
        is_answer_T: true for the frames to be predicted; reference frames of the prompt are not.
        speaker_D: precomputed speaker embedding.
    """

    rows: EmbeddingRows
    labels_T: Tensor
    is_answer_T: Tensor
    speaker_D: Tensor


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """Examples of different lengths: one to a row and padded at the end, or all in one row.

    Attributes:
        rows: (B, T) rows; padding holds nothing.
        labels_BT: see `TrainingExample.labels_T`; IGNORED in the padding.
        is_answer_BT: false in the padding.
        speaker_ND: speaker embedding per example.
        packing: where examples that share the only row begin and end; None where each has a row.
    """

    rows: EmbeddingRows
    labels_BT: Tensor
    is_answer_BT: Tensor
    speaker_ND: Tensor
    packing: Packing | None = None

    def to(self, device: torch.device | str) -> TrainingBatch:
        """The same batch on another device."""
        return replace(
            self,
            rows=self.rows.to(device),
            labels_BT=self.labels_BT.to(device),
            is_answer_BT=self.is_answer_BT.to(device),
            speaker_ND=self.speaker_ND.to(device),
            packing=self.packing.to(device) if self.packing is not None else None,
        )


def build_example(config: ModelConfig, prompt: Prompt, codes_FQ: Tensor, speaker_D: Tensor) -> TrainingExample:
    """Append the answer's frames to a prompt and line the labels up with what predicts them.

    Args:
        config: the checkpoint's configuration.
        prompt: any layout; trailing text runs beside the frames as it does in generation.
        codes_FQ: the utterance's codes, at least one frame.
        speaker_D: its speaker embedding.
    """
    num_frames, prompt_steps = codes_FQ.shape[0], len(prompt.rows)
    assert num_frames > 0
    beside = [*prompt.trailing_text_ids[:num_frames]]
    beside += [config.tts_pad_token_id] * (num_frames - len(beside))
    rows = concatenate([prompt.rows, frame_rows(codes_FQ, beside)])
    labels_T = torch.full((len(rows),), IGNORED, dtype=torch.long)
    labels_T[prompt_steps - 1 : -1] = codes_FQ[:, 0]
    labels_T[-1] = config.talker.codec_eos_token_id
    is_answer_T = torch.zeros(len(rows), dtype=torch.bool)
    is_answer_T[prompt_steps:] = True
    return TrainingExample(rows=rows, labels_T=labels_T, is_answer_T=is_answer_T, speaker_D=speaker_D)


def collate(examples: Sequence[TrainingExample]) -> TrainingBatch:
    """Pad examples to the longest and stack them."""
    longest = max(len(example.rows) for example in examples)
    labels_BT = torch.full((len(examples), longest), IGNORED, dtype=torch.long)
    is_answer_BT = torch.zeros(len(examples), longest, dtype=torch.bool)
    for row, example in enumerate(examples):
        labels_BT[row, : len(example.rows)] = example.labels_T
        is_answer_BT[row, : len(example.rows)] = example.is_answer_T
    return TrainingBatch(
        rows=pad_and_stack([example.rows for example in examples]),
        labels_BT=labels_BT,
        is_answer_BT=is_answer_BT,
        speaker_ND=torch.stack([example.speaker_D for example in examples]),
    )


def pack(examples: Sequence[TrainingExample]) -> TrainingBatch:
    """Put examples one behind another into a single row."""
    return TrainingBatch(
        rows=concatenate([example.rows for example in examples]).batched(),
        labels_BT=torch.cat([example.labels_T for example in examples]).unsqueeze(0),
        is_answer_BT=torch.cat([example.is_answer_T for example in examples]).unsqueeze(0),
        speaker_ND=torch.stack([example.speaker_D for example in examples]),
        packing=Packing(tuple(len(example.rows) for example in examples), torch.device("cpu")),
    )
