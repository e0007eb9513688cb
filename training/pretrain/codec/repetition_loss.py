"""How far decoded sound repeats itself from frame to frame, where what was recorded does not.

A decoder has no source of noise. What it makes a hiss of comes from its weights, and where the codes hardly change it
is the same in every frame: a buzz. A spectrogram does not tell, for it has the level of each band, not what is in it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.pretrain.codec.autocorrelation import BandAutocorrelation
from training.pretrain.codec.job import SAMPLES_PER_FRAME

_WINDOW, _HOP = 2 * SAMPLES_PER_FRAME, SAMPLES_PER_FRAME // 2
# Steps of the decoder's lowest rate, up to a frame.
_LAGS = range(SAMPLES_PER_FRAME // 4, SAMPLES_PER_FRAME + 1, SAMPLES_PER_FRAME // 4)
# Above what voices repeat strongly.
_BANDS_HZ = ((1500.0, 3500.0), (3500.0, 8000.0))
_MIN_LEVEL = 3e-3


class RepetitionLoss(nn.Module):
    """Mean excess of autocorrelation at the steps of a decoder, over bands and the recording's windows with sound."""

    def __init__(self, sample_rate_hz: int) -> None:
        super().__init__()
        self._autocorrelation = BandAutocorrelation(sample_rate_hz, _WINDOW, _HOP, _BANDS_HZ, _LAGS)

    def forward(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The loss, a scalar from 0 to 1, of two float32 batches (rows, samples) of at least two frames."""
        with torch.no_grad():
            recorded, level = self._autocorrelation(target)
            is_sound = level > _MIN_LEVEL
        found, _ = self._autocorrelation(predicted)
        excess = (found - recorded.clamp(min=0.0)).clamp(min=0.0).mean(dim=-1)
        mean: Tensor = (excess * is_sound).sum() / (is_sound.sum() * len(excess)).clamp(min=1)
        return mean
