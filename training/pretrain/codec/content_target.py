"""What the first codebook must tell: what is said, told apart from who says it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.network.mel import mel_filterbank
from training.pretrain.codec.job import SAMPLES_PER_FRAME

# A window too short to tell harmonics apart: their distance, the pitch, is the speaker's and not the text's.
_FFT_SIZE = 256
_HOP_SAMPLES = 160
_NUM_BANDS = 24
_FLOOR = 1e-3
_FRAMES_PER_CODE = SAMPLES_PER_FRAME // _HOP_SAMPLES


class ContentTarget(nn.Module):
    """Log-mel spectrum without the crop's own mean and scale: loudness, channel and average timbre are gone."""

    def __init__(self, sample_rate_hz: int) -> None:
        super().__init__()
        bank = mel_filterbank(sample_rate_hz, _FFT_SIZE, _NUM_BANDS) * (sample_rate_hz / _FFT_SIZE)
        self.register_buffer("bank", bank, persistent=False)
        self.register_buffer("window", torch.hann_window(_FFT_SIZE), persistent=False)

    @torch.no_grad()
    def forward(self, waveform: Tensor) -> Tensor:
        """Targets (rows, values, codec frames) of waveforms (rows, samples) of whole codec frames."""
        padding = (_FFT_SIZE - _HOP_SAMPLES) // 2
        padded = functional.pad(waveform.unsqueeze(1), (padding, padding), mode="reflect").squeeze(1)
        window = self.get_buffer("window")
        spectrum = torch.stft(
            padded, _FFT_SIZE, _HOP_SAMPLES, window=window, center=False, normalized=True, return_complex=True
        )
        log_mel = (self.get_buffer("bank") @ spectrum.abs()).clamp(min=_FLOOR).log()
        centred = log_mel - log_mel.mean(dim=-1, keepdim=True)
        # A crop of silence has no scale of its own.
        normalised = centred / centred.square().mean(dim=(1, 2), keepdim=True).sqrt().clamp(min=0.1)
        target: Tensor = normalised.unflatten(-1, (-1, _FRAMES_PER_CODE)).transpose(2, 3).flatten(1, 2)
        return target
