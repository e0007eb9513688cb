"""Decides by resynthesis of speech whether a speech tokenizer's weights may be stored in half precision."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.model.checkpoint.names import is_codebook_statistic
from training.model.checkpoint.reading import WEIGHTS_FILE
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec.evaluation import resynthesize
from training.pretrain.codec.spectral_loss import SpectralLoss

# A rounded encoder chooses other entries where two are almost equally near. That does not matter as long as resynthesis
# stays as close to the source; a broken encoder would choose others everywhere.
MIN_CODES_KEPT = 0.9
MAX_DISTANCE_GAINED = 0.01

WHOLE, DECODER = "", "decoder."
"""What is rounded: names of weights begin with it. An encoder with the filters of the analysis cannot be."""


class Agreement(NamedTuple):
    """The effect of rounding."""

    codes_kept: float
    """Share of unchanged codes in codebook 0, which matters most to the talker."""
    distance_gained: float
    """Relative increase of the distance between resynthesis and source."""

    @property
    def is_close(self) -> bool:
        """Whether the difference is inaudible."""
        return self.codes_kept >= MIN_CODES_KEPT and self.distance_gained <= MAX_DISTANCE_GAINED


def rounded(name: str, tensor: Tensor, part: str = WHOLE) -> Tensor:
    """A weight as it would be stored; codebooks are not rounded, since rounding their sums would move every entry."""
    keeps = is_codebook_statistic(name) or not tensor.is_floating_point() or not name.startswith(part)
    return tensor if keeps else tensor.bfloat16()


@torch.no_grad()
def compare_rounded(tokenizer: SpeechTokenizer, speech: Sequence[Tensor], part: str = WHOLE) -> Agreement:
    """Resynthesize speech, float32 (samples,) at the tokenizer's rate, with and without rounding a part."""
    other = copy.deepcopy(tokenizer)
    for name, tensor in other.state_dict().items():
        tensor.copy_(rounded(name, tensor, part))
    loss = SpectralLoss(tokenizer.config.input_sample_rate)
    kept, before, after = [], [], []
    for source in speech:
        exact, coarse = resynthesize(tokenizer, source), resynthesize(other, source)
        kept.append((exact.codes[:, 0] == coarse.codes[:, 0]).float().mean())
        before.append(loss(exact.waveform[None], source[None]))
        after.append(loss(coarse.waveform[None], source[None]))
    gained = torch.stack(after).mean() / torch.stack(before).mean() - 1
    return Agreement(float(torch.stack(kept).mean()), float(gained))


def store_rounded(folder: Path, part: str = WHOLE) -> None:
    """Rewrite the weights of a part of a `speech_tokenizer` folder, whose codebooks stay float32."""
    path = folder / WEIGHTS_FILE
    tensors = {name: rounded(name, tensor, part).contiguous() for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
