"""Features of a codec frame, measured from the waveform; the codebooks are fitted to them.

Two vectors per frame. `content` is a log-mel spectrum without the utterance's own mean and scale: what is said,
independently of the speaker. `sound` is the log-mel spectrum as it is, with pitch and voicing: what the voice sounds
like. Both depend on a frame's own samples and a few before them, never on later ones, so that a causal encoder can
learn to imitate them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.network.mel import mel_filterbank
from training.pretrain.codec.job import SAMPLES_PER_FRAME

FFT_SIZE, _HOP_SAMPLES, NUM_BANDS = 512, 320, 40
_FLOOR = 1e-3

_PITCH_WINDOW, _PITCH_HOP = 1024, 640
_PITCH_RANGE_HZ = (60.0, 420.0)
_MIDDLE_PITCH_HZ = 150.0
# Normalised autocorrelation at the period of a voiced sound.
_VOICED_CORRELATION = 0.5
# Quieter windows have no reliable pitch.
_VOICED_LEVEL = 3e-3
# An octave of pitch counts as much as a difference of 15 nepers in one band: it is a single number among 160 bands, and
# more audible than any of them.
_PITCH_WEIGHT, _VOICING_WEIGHT = 15.0, 4.0

# A window too short to resolve harmonics: their distance, the pitch, depends on the speaker and not on the text.
CONTENT_FFT_SIZE, _CONTENT_HOP_SAMPLES, CONTENT_BANDS = 256, 160, 24
_FRAMES_PER_CODE = SAMPLES_PER_FRAME // _CONTENT_HOP_SAMPLES

CONTENT_WIDTH = 192
SOUND_WIDTH = NUM_BANDS * (SAMPLES_PER_FRAME // _HOP_SAMPLES) + 2 * (SAMPLES_PER_FRAME // _PITCH_HOP)


class Features(NamedTuple):
    """Features of one utterance: (frames, CONTENT_WIDTH) and (frames, SOUND_WIDTH), float32."""

    content: Tensor
    sound: Tensor


class ContentTarget(nn.Module):
    """Log-mel spectrum without the crop's own mean and scale, which removes loudness, channel and average timbre."""

    def __init__(self, sample_rate_hz: int) -> None:
        super().__init__()
        bank = mel_filterbank(sample_rate_hz, CONTENT_FFT_SIZE, CONTENT_BANDS) * (sample_rate_hz / CONTENT_FFT_SIZE)
        self.register_buffer("bank", bank, persistent=False)
        self.register_buffer("window", torch.hann_window(CONTENT_FFT_SIZE), persistent=False)

    @torch.no_grad()
    def forward(self, waveform: Tensor) -> Tensor:
        """Targets (rows, values, codec frames) of waveforms (rows, samples) of whole codec frames."""
        padding = (CONTENT_FFT_SIZE - _CONTENT_HOP_SAMPLES) // 2
        padded = functional.pad(waveform.unsqueeze(1), (padding, padding), mode="reflect").squeeze(1)
        window = self.get_buffer("window")
        spectrum = torch.stft(
            padded,
            CONTENT_FFT_SIZE,
            _CONTENT_HOP_SAMPLES,
            window=window,
            center=False,
            normalized=True,
            return_complex=True,
        )
        log_mel = (self.get_buffer("bank") @ spectrum.abs()).clamp(min=_FLOOR).log()
        centred = log_mel - log_mel.mean(dim=-1, keepdim=True)
        # A crop of silence has no scale of its own.
        normalised = centred / centred.square().mean(dim=(1, 2), keepdim=True).sqrt().clamp(min=0.1)
        target: Tensor = normalised.unflatten(-1, (-1, _FRAMES_PER_CODE)).transpose(2, 3).flatten(1, 2)
        return target


class FrameFeatures(nn.Module):
    """Measures utterances of any length at 16 kHz."""

    def __init__(self, sample_rate_hz: int) -> None:
        super().__init__()
        self._sample_rate_hz = sample_rate_hz
        self.content = ContentTarget(sample_rate_hz)
        bank = mel_filterbank(sample_rate_hz, FFT_SIZE, NUM_BANDS) * (sample_rate_hz / FFT_SIZE)
        self.register_buffer("bank", bank, persistent=False)
        self.register_buffer("window", torch.hann_window(FFT_SIZE), persistent=False)
        self.register_buffer("pitch_window", torch.hann_window(_PITCH_WINDOW), persistent=False)

    @torch.no_grad()
    def forward(self, waveform: Tensor) -> Features:
        """Features of float32 samples (samples,); silence fills the last frame."""
        missing = -len(waveform) % SAMPLES_PER_FRAME
        padded = functional.pad(waveform, (0, missing))
        content = self.content(padded.unsqueeze(0))[0].t()
        sound = torch.cat((self._bands(padded), self._pitch(padded)), dim=1)
        return Features(content, sound)

    def _bands(self, waveform: Tensor) -> Tensor:
        """Log-mel magnitudes (frames, bands of all windows that end in the frame)."""
        before = functional.pad(waveform, (FFT_SIZE - _HOP_SAMPLES, 0))
        spectrum = torch.stft(
            before,
            FFT_SIZE,
            _HOP_SAMPLES,
            window=self.get_buffer("window"),
            center=False,
            normalized=True,
            return_complex=True,
        )
        log_mel = (self.get_buffer("bank") @ spectrum.abs()).clamp(min=_FLOOR).log()
        return log_mel.t().reshape(len(waveform) // SAMPLES_PER_FRAME, -1)

    @torch.no_grad()
    def median_pitch_hz(self, waveform: Tensor) -> float | None:
        """Of the voiced windows of float32 samples (samples,); None if there are none."""
        pitch_octaves, is_voiced = self._pitch_and_voicing(waveform)
        if not is_voiced.any():
            return None
        return _MIDDLE_PITCH_HZ * 2 ** float(pitch_octaves[is_voiced].median())

    def _pitch_and_voicing(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """Octaves above the middle pitch, and whether they mean anything; both (windows,)."""
        before = functional.pad(waveform, (_PITCH_WINDOW - _PITCH_HOP, 0))
        windows = before.unfold(0, _PITCH_WINDOW, _PITCH_HOP)
        level = windows.square().mean(dim=1).sqrt()
        pitch_octaves, correlation = self._strongest_period(windows)
        return pitch_octaves, (correlation > _VOICED_CORRELATION) & (level > _VOICED_LEVEL)

    def _pitch(self, waveform: Tensor) -> Tensor:
        """Weighted pitch and voicing (frames, 2 per pitch window)."""
        pitch_octaves, is_voiced = self._pitch_and_voicing(waveform)
        values = torch.stack((pitch_octaves * _PITCH_WEIGHT, torch.full_like(pitch_octaves, _VOICING_WEIGHT)), dim=1)
        values = torch.where(is_voiced.unsqueeze(1), values, 0.0)
        return values.reshape(len(waveform) // SAMPLES_PER_FRAME, -1)

    def _strongest_period(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Octaves above the middle pitch, and the autocorrelation at that period; both (windows,)."""
        shape = self.get_buffer("pitch_window")
        own = _autocorrelation(shape)
        correlation = _autocorrelation((windows - windows.mean(dim=1, keepdim=True)) * shape)
        # Divided by the window's own (Boersma 1993), or long periods would always look weaker.
        correlation = correlation / correlation[:, :1].clamp(min=1e-9) / (own / own[0]).clamp(min=1e-3)
        shortest = int(self._sample_rate_hz / _PITCH_RANGE_HZ[1])
        longest = int(self._sample_rate_hz / _PITCH_RANGE_HZ[0])
        lags = torch.arange(shortest, longest + 1, device=windows.device)
        # Two periods correlate as well as one, so longer periods get a small penalty.
        octave_cost = 0.03 * torch.log2(lags / shortest)
        best, where = (correlation[:, shortest : longest + 1] - octave_cost).max(dim=1)
        period = lags[where]
        octaves = torch.log2(self._sample_rate_hz / period / _MIDDLE_PITCH_HZ)
        return octaves, best + octave_cost[where]


def _autocorrelation(windows: Tensor) -> Tensor:
    size = 2 * windows.shape[-1]
    repeated: Tensor = torch.fft.irfft(torch.fft.rfft(windows, size).abs().square(), size)
    return repeated[..., : windows.shape[-1]]
