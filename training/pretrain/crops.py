"""Draws training batches from a corpus: a step's crops depend on the seed and the step alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.pretrain.corpus import Corpus
from training.pretrain.tokenizer_job import SAMPLES_PER_FRAME, CropShape

# Recordings are not all as loud as the engines.
_GAIN_DB = (-8.0, 4.0)
_LOUDEST_PEAK = 0.99
FULL_SCALE = 32768.0


class CropSource:
    """An endless stream of batches that can be entered at any step."""

    def __init__(self, corpus: Corpus, shapes: Sequence[CropShape], seed: int) -> None:
        self._corpus = corpus
        self._shapes = shapes
        self._seed = seed
        self._ends = np.cumsum(corpus.num_samples)

    def batch(self, step: int) -> Tensor:
        """Crops of step `step`, float32 (crops, samples) in [-1, 1], random in loudness."""
        random = np.random.default_rng((self._seed, step))
        shares = np.array([shape.share for shape in self._shapes])
        shape = self._shapes[random.choice(len(shares), p=shares / shares.sum())]
        num_samples = shape.num_frames * SAMPLES_PER_FRAME
        return torch.from_numpy(np.stack([self._crop(random, num_samples) for _ in range(shape.num_crops)]))

    def _crop(self, random: np.random.Generator, num_samples: int) -> NDArray[np.float32]:
        """A piece of an utterance drawn by its length; shorter utterances begin at a random place in silence."""
        number = int(np.searchsorted(self._ends, random.integers(self._ends[-1]), side="right"))
        audio = self._corpus.utterance(number).audio
        spare = len(audio) - num_samples
        offset = int(random.integers(abs(spare) + 1))
        piece = np.zeros(num_samples, dtype=np.float32)
        if spare >= 0:
            piece[:] = audio[offset : offset + num_samples]
        else:
            piece[offset : offset + len(audio)] = audio
        piece *= 10 ** (random.uniform(*_GAIN_DB) / 20) / FULL_SCALE
        return piece * np.float32(min(1.0, _LOUDEST_PEAK / max(1e-6, float(np.abs(piece).max()))))
