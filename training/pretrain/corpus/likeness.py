# Shape letters: N sample, F frame, K cepstral coefficient.
"""Voices that speak English made like people who do not: their sounds get those people's mean spectrum and spread.

A voice is described by mean and covariance of its envelope's cepstrum while it speaks. Speech of one voice is carried
over to another's by optimal transport between two normal distributions, which moves every sound as little as it can:
words, accent, tempo and pitch stay. A verifier finds the result about half-way between both voices, and a recogniser
understands it as well as before. What lies between two people's distributions makes another person.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.model.normal_transport import transport
from training.pretrain.corpus.spectral_envelope import WINDOW, LogGains, Spectra, cepstra_of, filtered, spectra_of

_NUM_COEFFICIENTS = 30
"""Without the level. More of them would carry harmonics over, fewer leave formants blurred."""
_MAX_LOG_GAIN = 3.0
# Quieter frames than this below the loudest one are pauses. What is near it is changed in part.
_PAUSE_NEPERS, _PAUSE_WIDTH = 4.0, 0.25
_MIN_AMOUNT = 0.6


@dataclass(frozen=True)
class Likeness:
    """Whom a voice is made like.

    Attributes:
        people: two of them.
        share: of the second one; 0 for the first alone.
        amount: how far towards them the voice is moved; 1 is all the way.
    """

    people: tuple[str, str]
    share: float
    amount: float

    @classmethod
    def drawn(cls, name: str, people: tuple[str, ...]) -> Likeness:
        """That of the speaker of this name: always the same one, half of them like one person alone."""
        draw = random.Random(f"likeness {name}")
        first, second = draw.sample(people, 2)
        share = 0.0 if draw.random() < 0.5 else round(draw.random(), 3)
        return cls(people=(first, second), share=share, amount=round(draw.uniform(_MIN_AMOUNT, 1), 3))


@dataclass(frozen=True, eq=False)
class VoiceSpectrum:
    """Mean (K,) and covariance (K, K) of a voice's cepstrum while it speaks."""

    mean_K: NDArray[np.float64]
    covariance_KK: NDArray[np.float64]

    @classmethod
    def of(cls, sounds: Iterable[NDArray[np.float32]]) -> VoiceSpectrum:
        """Of some utterances (N,), half a minute or more."""
        spoken = []
        for samples in sounds:
            cepstra = cepstra_of(spectra_of(samples))
            spoken.append(cepstra[_is_speech(cepstra) > 0.5, 1 : _NUM_COEFFICIENTS + 1])
        every_FK = np.concatenate(spoken)
        return cls(every_FK.mean(axis=0), np.cov(every_FK.T))

    def towards(self, other: VoiceSpectrum, share: float) -> VoiceSpectrum:
        """The distribution that lies this share of the way to another one: what transport makes of this."""
        step_KK = (1 - share) * np.eye(_NUM_COEFFICIENTS) + share * self.transport(other)
        mean_K = (1 - share) * self.mean_K + share * other.mean_K
        return VoiceSpectrum(mean_K, step_KK @ self.covariance_KK @ step_KK.T)

    def transport(self, other: VoiceSpectrum) -> NDArray[np.float64]:
        """The matrix (K, K) that carries deviations from this mean over to the other one."""
        return transport(self.covariance_KK, other.covariance_KK)


def made_like(
    samples: NDArray[np.float32], own: VoiceSpectrum, wanted: VoiceSpectrum, amount: float
) -> NDArray[np.float32]:
    """An utterance (N,) by a voice, as one with the wanted spectrum would say it; the level changes too."""
    matrix_KK = own.transport(wanted)

    def log_gains(spectra: Spectra) -> LogGains:
        cepstra = cepstra_of(spectra)
        coefficients = slice(1, _NUM_COEFFICIENTS + 1)
        own_FK = cepstra[:, coefficients]
        moved_FK = (own_FK - own.mean_K) @ matrix_KK.T + wanted.mean_K
        change = np.zeros((len(cepstra), WINDOW))
        change[:, coefficients] = amount * _is_speech(cepstra)[:, None] * (moved_FK - own_FK)
        # Symmetric, as cepstra are.
        change[:, -_NUM_COEFFICIENTS:] = change[:, _NUM_COEFFICIENTS:0:-1]
        gains: LogGains = np.clip(np.fft.rfft(change).real, -_MAX_LOG_GAIN, _MAX_LOG_GAIN)
        return gains

    return filtered(samples, log_gains)


def _is_speech(cepstra: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every frame (F,), from 0 in pauses to 1."""
    level = cepstra[:, 0]
    above = (level - level.max() + _PAUSE_NEPERS) / _PAUSE_WIDTH
    speech: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(above, -30, 30)))
    return speech
