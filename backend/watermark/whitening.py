"""What a recording's spectrum does beyond what sound does anyway: where a mark shows, if there is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backend.watermark.pattern import STEP_SECONDS

SAMPLE_RATE_HZ = 16_000
STEP_SAMPLES = round(SAMPLE_RATE_HZ * STEP_SECONDS)
WINDOW_SAMPLES = 480
BIN_HZ = SAMPLE_RATE_HZ / WINDOW_SAMPLES
LOWEST_BIN, HIGHEST_BIN = 8, 218
"""The pattern's band and a twentieth more on both sides, for sound that plays faster or slower."""

_PATCH_STEPS = 128
_CLIP = 3.0
# Below these a bin holds rounding and coding noise: relative to its own loud moments, and to the loudest bin.
_OWN_FLOOR, _COMMON_FLOOR = 1e-5, 1e-6
_TINY = 1e-20
_SPREAD = 2.0


def log_energies(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """(steps, bins) of sound at SAMPLE_RATE_HZ; none where it is shorter than a window."""
    if len(samples) < WINDOW_SAMPLES:
        return np.zeros((0, HIGHEST_BIN - LOWEST_BIN), dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(samples, WINDOW_SAMPLES)[::STEP_SAMPLES]
    spectrum = np.fft.rfft(windows * np.hanning(WINDOW_SAMPLES).astype(np.float32))[:, LOWEST_BIN:HIGHEST_BIN]
    energies = spectrum.real**2 + spectrum.imag**2
    loud = np.quantile(energies, 0.95, axis=0)
    floor = _OWN_FLOOR * loud + _COMMON_FLOOR * loud.max() + _TINY
    levels: NDArray[np.float32] = np.log(energies + floor).astype(np.float32)
    return levels


def whiten(levels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weigh each place of a spectrogram (steps, bins) by how well a mark would stand out there.

    Speech changes slowly from one moment and one frequency to the next, and a mark does not. So patches are divided
    by the power that the recording itself has at each rate of change, before outliers are clipped and again after it
    (the matched filter for a known pattern in coloured noise).
    """
    steps = len(levels)
    half = _PATCH_STEPS // 2
    padding = (half, half + (-steps) % half)
    padded = np.pad(levels, (padding, (0, 0)), mode="reflect" if steps > max(padding) else "edge")
    window = np.sin(np.pi * (np.arange(_PATCH_STEPS) + 0.5) / _PATCH_STEPS).astype(np.float32)[:, None]
    patches = np.lib.stride_tricks.sliding_window_view(padded, _PATCH_STEPS, axis=0)[::half].swapaxes(1, 2)
    patches = patches - patches.mean(axis=1, keepdims=True)
    patches -= patches.mean(axis=2, keepdims=True)
    spectra = np.fft.rfft2(patches * window, axes=(2, 1))
    power = _smooth((spectra.real**2 + spectra.imag**2).mean(axis=0))
    inverse = (1 / (power + _SPREAD * np.median(power) + _TINY)).astype(np.float32)
    shape = (levels.shape[1], _PATCH_STEPS)
    root = np.sqrt(inverse)
    whitened = _overlap_add(np.fft.irfft2(spectra * root, s=shape, axes=(2, 1)), window)
    whitened /= whitened.std() + _TINY
    again = np.lib.stride_tricks.sliding_window_view(np.clip(whitened, -_CLIP, _CLIP), _PATCH_STEPS, axis=0)
    spectra = np.fft.rfft2(again[::half].swapaxes(1, 2) * window, axes=(2, 1))
    result = _overlap_add(np.fft.irfft2(spectra * root, s=shape, axes=(2, 1)), window)
    result = result[half : half + steps]
    scaled: NDArray[np.float32] = (result / (result.std() + _TINY)).astype(np.float32)
    return scaled


def _overlap_add(patches: NDArray[np.floating], window: NDArray[np.float32]) -> NDArray[np.float32]:
    half = _PATCH_STEPS // 2
    patches = patches * window
    sums = np.zeros((half * (len(patches) + 1), patches.shape[2]), dtype=np.float32)
    halves = sums.reshape(len(patches) + 1, half, -1)
    halves[:-1] += patches[:, :half]
    halves[1:] += patches[:, half:]
    return sums


def _smooth(power: NDArray[np.floating]) -> NDArray[np.floating]:
    """Mean over a place (rate in time, rate in frequency) and its neighbours; the second axis wraps around."""
    power = (power + np.roll(power, 1, 1) + np.roll(power, -1, 1)) / 3
    padded = np.pad(power, ((1, 1), (0, 0)), mode="edge")
    return (padded[:-2] + padded[1:-1] + padded[2:]) / 3
