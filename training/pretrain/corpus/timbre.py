"""Other vocal tracts for an engine's voice: its formants moved one by one, and its spectrum coloured.

Pitch, tempo and words stay. The few voices that engines have cannot teach how people differ. An independent verifier
finds a voice changed this way nearly as unlike itself as two people are, and a recogniser understands it about as well.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.pretrain.corpus.spectral_envelope import NUM_BINS, WINDOW, LogGains, Spectra, cepstra_of, filtered

# Cepstral coefficients of the envelope: fine enough for formants, too coarse for the harmonics of voices below 400 Hz.
_ENVELOPE_ORDER = 28
_MAX_LOG_GAIN = 2.5

# In thousandths of half the sample rate: about where the formants of people lie, each with room to move.
_FORMANTS = (44, 100, 188, 288, 412, 562)
_FORMANT_SPREAD = 0.2
"""Maximum logarithm of a formant's factor."""
_BANDS = (0, 38, 88, 175, 275, 400, 562, 750, 1000)
_BAND_DB = 6.0
_TILT_DB_PER_OCTAVE = 3.5
_TILT_PIVOT = 125
_TILT_LOWEST = 25


@dataclass(frozen=True)
class Timbre:
    """How one speaker's spectrum differs from that of the voice it is made of.

    Attributes:
        formant_factors: of `_FORMANTS`, in their order.
        band_db: gain at `_BANDS`, with straight lines between.
        tilt_db: per octave, from the low to the high ones.
    """

    formant_factors: tuple[float, ...]
    band_db: tuple[float, ...]
    tilt_db: float

    @classmethod
    def drawn(cls, name: str) -> Timbre:
        """That of the speaker of this name: always the same one."""
        draw = random.Random(f"timbre {name}").uniform
        return cls(
            formant_factors=tuple(round(float(np.exp(draw(-_FORMANT_SPREAD, _FORMANT_SPREAD))), 4) for _ in _FORMANTS),
            band_db=tuple(round(draw(-_BAND_DB, _BAND_DB), 2) for _ in _BANDS),
            tilt_db=round(draw(-_TILT_DB_PER_OCTAVE, _TILT_DB_PER_OCTAVE), 2),
        )

    @classmethod
    def scaled(cls, factor: float) -> Timbre:
        """All formants moved by one factor, and no colour."""
        return cls(formant_factors=(factor,) * len(_FORMANTS), band_db=(0.0,) * len(_BANDS), tilt_db=0.0)

    def applied(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same sentence (samples,) by that vocal tract; the level changes too."""
        return filtered(samples, self._log_gains)

    def _log_gains(self, spectra: Spectra) -> LogGains:
        """What every bin (frames, bins) is multiplied by, as a logarithm."""
        cepstra = cepstra_of(spectra)
        cepstra[:, _ENVELOPE_ORDER : WINDOW - _ENVELOPE_ORDER + 1] = 0
        envelopes = np.fft.rfft(cepstra).real
        place = np.linspace(0, 1000, NUM_BINS)
        # Where in the old envelope each bin of the new one is found.
        before = np.interp(place, *self._moved()) * (NUM_BINS - 1) / 1000
        low = np.minimum(before.astype(int), NUM_BINS - 2)
        share = before - low
        moved = envelopes[:, low] * (1 - share) + envelopes[:, low + 1] * share
        octaves = np.log2(np.maximum(place, _TILT_LOWEST) / _TILT_PIVOT)
        colour_db = np.interp(place, _BANDS, self.band_db) + self.tilt_db * octaves
        gains: LogGains = np.clip(moved - envelopes, -_MAX_LOG_GAIN, _MAX_LOG_GAIN)
        gains += colour_db * (np.log(10) / 20)
        return gains

    def _moved(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """New and old places of the formants, both rising."""
        old = np.array([0, *_FORMANTS, 1000], float)
        new = old.copy()
        new[1:-1] *= self.formant_factors
        for index in range(1, len(new) - 1):
            # Neighbours may come close, but not change places.
            new[index] = max(new[index], new[index - 1] + 0.3 * (old[index] - old[index - 1]))
        return np.minimum(new, 1000), old
