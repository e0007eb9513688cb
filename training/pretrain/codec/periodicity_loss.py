"""How far decoded speech lacks the pitch of what was recorded.

A spectrum that tells harmonics apart finds a pitch that is wrong by a twentieth as bad as none at all, so a decoder
that whispers is not led to any. Autocorrelation at the recorded period, of what is below the formants, is nearly right
where the pitch nearly is, and does not depend on the phase. Higher bands are compared as well, for a voice with a
pitch may still have breath where the recording has harmonics.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from training.pretrain.codec.autocorrelation import BandAutocorrelation

_WINDOW, _HOP = 1024, 320
_PITCH_RANGE_HZ = (60.0, 400.0)
# The first has the fundamental and few harmonics, whose autocorrelation has wide peaks, and finds the period.
_BANDS_HZ = ((0.0, 500.0), (500.0, 1000.0), (1000.0, 2000.0))
# Where sound counts as voiced: its autocorrelation at its period, and its level.
_VOICED_CORRELATION, _VOICED_LEVEL = 0.6, 3e-3
_OCTAVE_COST = 0.03


class Periods(NamedTuple):
    """The periods of recorded speech, in windows of 1,024 samples."""

    samples: Tensor
    """Of each window (rows, windows)."""
    correlation: Tensor
    """Of each band with itself one period later (bands, rows, windows)."""
    is_voiced: Tensor
    """Whether a band has this period (bands, rows, windows); the first decides whether there is one at all."""

    def longer_than(self, samples: float, num_samples: int) -> Tensor:
        """Where a recording of `num_samples` is voiced with longer periods than `samples`: bool (rows, num_samples)."""
        centres = (torch.arange(num_samples, device=self.samples.device) - _WINDOW / 2) / _HOP
        nearest = centres.round().long().clamp(0, self.samples.shape[1] - 1)
        return (self.is_voiced[0] & (self.samples > samples))[:, nearest]


class PeriodicityLoss(nn.Module):
    """Mean difference of autocorrelations at the recorded periods, over bands and the recording's voiced windows."""

    def __init__(self, sample_rate_hz: int) -> None:
        super().__init__()
        shortest, longest = (int(sample_rate_hz / pitch_hz) for pitch_hz in reversed(_PITCH_RANGE_HZ))
        lags = range(shortest, longest + 1)
        self._shortest = shortest
        self._autocorrelation = BandAutocorrelation(sample_rate_hz, _WINDOW, _HOP, _BANDS_HZ, lags)
        # Two periods correlate as well as one.
        octave_cost = _OCTAVE_COST * torch.log2(torch.tensor(lags) / shortest)
        self.register_buffer("octave_cost", octave_cost, persistent=False)

    @torch.no_grad()
    def periods(self, target: Tensor) -> Periods:
        """The periods of recordings, a float32 batch (rows, samples)."""
        found, level = self._autocorrelation(target)
        where = (found[0] - self.get_buffer("octave_cost")).argmax(dim=-1, keepdim=True)
        correlation = found.gather(-1, where.expand(len(found), *where.shape))[..., 0]
        is_voiced = (correlation > _VOICED_CORRELATION) & (correlation[0] > _VOICED_CORRELATION)
        return Periods(where[..., 0] + self._shortest, correlation, is_voiced & (level > _VOICED_LEVEL))

    def forward(self, predicted: Tensor, recorded: Periods) -> Tensor:
        """The loss, a scalar from 0 to 2, of a float32 batch (rows, samples); 0 where nothing recorded is voiced."""
        return self.of_bands(predicted, recorded).mean()

    def of_bands(self, predicted: Tensor, recorded: Periods) -> Tensor:
        """The loss of each band, where the recording has its period in that band (bands,)."""
        found, _ = self._autocorrelation(predicted)
        where = (recorded.samples - self._shortest).unsqueeze(-1)
        at_period = found.gather(-1, where.expand(len(found), *where.shape))[..., 0]
        missing = (recorded.correlation - at_period).abs() * recorded.is_voiced
        of_bands: Tensor = missing.sum(dim=(1, 2)) / recorded.is_voiced.sum(dim=(1, 2)).clamp(min=1)
        return of_bands
