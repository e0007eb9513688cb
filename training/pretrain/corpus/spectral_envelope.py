# Shape letters: N sample, F frame, K cepstral coefficient.
"""Speech in short frames: their cepstra, and a filter that is another one for each frame."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

WINDOW = 512
HOP = 128
NUM_BINS = WINDOW // 2 + 1
_FLOOR = 1e-5

Spectra = NDArray[np.complex128]
LogGains = NDArray[np.float64]


def filtered(samples: NDArray[np.float32], log_gains: Callable[[Spectra], LogGains]) -> NDArray[np.float32]:
    """Samples (N,) whose spectra (F, bins) are multiplied by the exponentials of what is returned for them (F, bins).

    Phases stay. Frames overlap by three quarters.
    """
    padded = np.concatenate([np.zeros(WINDOW), samples, np.zeros(WINDOW + HOP)])
    places, spectra = _frames(padded)
    spectra *= np.exp(log_gains(spectra))
    window = _window()
    pieces = np.fft.irfft(spectra) * window
    sound, weight = np.zeros(len(padded)), np.zeros(len(padded))
    for place, piece in zip(places, pieces, strict=True):
        sound[place : place + WINDOW] += piece
        weight[place : place + WINDOW] += np.square(window)
    kept = slice(WINDOW, WINDOW + len(samples))
    return (sound[kept] / weight[kept]).astype(np.float32)


def spectra_of(samples: NDArray[np.float32]) -> Spectra:
    """The frames' spectra (F, bins), as `filtered` takes them."""
    return _frames(np.concatenate([np.zeros(WINDOW), samples, np.zeros(WINDOW + HOP)]))[1]


def cepstra_of(spectra: Spectra) -> NDArray[np.float64]:
    """Real cepstra (F, WINDOW), symmetric; the first coefficient is the level in nepers."""
    cepstra: NDArray[np.float64] = np.fft.irfft(np.log(np.abs(spectra) + _FLOOR))
    return cepstra


def _frames(padded: NDArray[np.float64]) -> tuple[NDArray[np.int64], Spectra]:
    places = np.arange(0, len(padded) - WINDOW, HOP)
    spectra: Spectra = np.fft.rfft(padded[places[:, None] + np.arange(WINDOW)] * _window())
    return places, spectra


def _window() -> NDArray[np.float64]:
    window: NDArray[np.float64] = np.hanning(WINDOW + 1)[:-1]
    return window
