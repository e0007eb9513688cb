# Shape letters: B batch, T step, N clip, F codec frame, Q codebook, D talker width.
"""Training examples: a prompt with its answer, laid out exactly as generation would see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from training.model.config import ModelConfig
from training.model.network.packing import Packing
from training.model.network.talker_input import TalkerInput, concatenate, frame_positions, pad_and_stack
from training.model.prompt.prompt import Prompt

IGNORED = -100
"""Label of positions that predict nothing; cross-entropy's default."""


@dataclass(frozen=True, kw_only=True)
class TrainingExample:
    """One utterance, teacher-forced.

    Attributes:
        inputs: the prompt's positions, then one per frame.
        labels_T: codebook 0 that position t is to predict: frame f stands at the position before frame f, the
            end of speech at the last frame. IGNORED elsewhere.
        is_answer_T: true for the frames to be predicted; reference frames of the prompt are not.
        speaker_D: precomputed speaker embedding.
    """

    inputs: TalkerInput
    labels_T: Tensor
    is_answer_T: Tensor
    speaker_D: Tensor


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """Examples of different lengths: one per batch row and padded at the end, or all packed into one row.

    Attributes:
        inputs: (B, T) positions; padding is empty.
        labels_BT: see `TrainingExample.labels_T`; IGNORED in the padding.
        is_answer_BT: false in the padding.
        speaker_ND: speaker embedding per example.
        packing: where packed examples begin and end; None if each has a row of its own.
        heard: what the talker reads instead of `inputs`, position by position; what it is to predict stays.
    """

    inputs: TalkerInput
    labels_BT: Tensor
    is_answer_BT: Tensor
    speaker_ND: Tensor
    packing: Packing | None = None
    heard: TalkerInput | None = None

    def to(self, device: torch.device | str) -> TrainingBatch:
        """The same batch on another device."""
        return replace(
            self,
            inputs=self.inputs.to(device),
            labels_BT=self.labels_BT.to(device),
            is_answer_BT=self.is_answer_BT.to(device),
            speaker_ND=self.speaker_ND.to(device),
            packing=self.packing.to(device) if self.packing is not None else None,
            heard=self.heard.to(device) if self.heard is not None else None,
        )


def build_example(config: ModelConfig, prompt: Prompt, codes_FQ: Tensor, speaker_D: Tensor) -> TrainingExample:
    """Append the answer's frames to a prompt and align the labels with the positions that predict them.

    Args:
        config: the checkpoint's configuration.
        prompt: any layout; trailing text accompanies the frames as it does in generation.
        codes_FQ: the utterance's codes, at least one frame.
        speaker_D: its speaker embedding.
    """
    num_frames, prompt_steps = codes_FQ.shape[0], len(prompt.inputs)
    assert num_frames > 0
    text_ids = [*prompt.trailing_text_ids[:num_frames]]
    text_ids += [config.tts_pad_token_id] * (num_frames - len(text_ids))
    inputs = concatenate([prompt.inputs, frame_positions(codes_FQ, text_ids)])
    labels_T = torch.full((len(inputs),), IGNORED, dtype=torch.long)
    labels_T[prompt_steps - 1 : -1] = codes_FQ[:, 0]
    labels_T[-1] = config.talker.codec_eos_token_id
    is_answer_T = torch.zeros(len(inputs), dtype=torch.bool)
    is_answer_T[prompt_steps:] = True
    return TrainingExample(inputs=inputs, labels_T=labels_T, is_answer_T=is_answer_T, speaker_D=speaker_D)


def collate(examples: Sequence[TrainingExample]) -> TrainingBatch:
    """Pad examples to the longest and stack them."""
    longest = max(len(example.inputs) for example in examples)
    labels_BT = torch.full((len(examples), longest), IGNORED, dtype=torch.long)
    is_answer_BT = torch.zeros(len(examples), longest, dtype=torch.bool)
    for row, example in enumerate(examples):
        labels_BT[row, : len(example.inputs)] = example.labels_T
        is_answer_BT[row, : len(example.inputs)] = example.is_answer_T
    return TrainingBatch(
        inputs=pad_and_stack([example.inputs for example in examples]),
        labels_BT=labels_BT,
        is_answer_BT=is_answer_BT,
        speaker_ND=torch.stack([example.speaker_D for example in examples]),
    )


def pack(examples: Sequence[TrainingExample]) -> TrainingBatch:
    """Concatenate examples into a single batch row."""
    return TrainingBatch(
        inputs=concatenate([example.inputs for example in examples]).batched(),
        labels_BT=torch.cat([example.labels_T for example in examples]).unsqueeze(0),
        is_answer_BT=torch.cat([example.is_answer_T for example in examples]).unsqueeze(0),
        speaker_ND=torch.stack([example.speaker_D for example in examples]),
        packing=Packing(tuple(len(example.inputs) for example in examples), torch.device("cpu")),
    )
