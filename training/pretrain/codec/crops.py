"""Draws training batches from a corpus: a step's crops depend on the seed and the step alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.pretrain.codec.frame_codes import CodedCorpus
from training.pretrain.codec.job import SAMPLES_PER_FRAME, CropShape
from training.pretrain.corpus.corpus import FULL_SCALE
from training.pretrain.errors import PretrainError

# Recordings are not all as loud as the engines.
_GAIN_DB = (-12.0, 6.0)
_LOUDEST_PEAK = 0.99


class Crops(NamedTuple):
    """A batch of pieces of utterances that begin and end with a codec frame."""

    waveform: Tensor
    """(crops, samples), float32 in [-1, 1]."""
    codes: Tensor
    """(crops, frames, codebooks), int64: from the analysis of the whole utterances."""
    gains: Tensor
    """(crops, 1): factor applied to the encoder's input."""


class CropSource:
    """An endless stream of batches with random access by step."""

    def __init__(self, coded: CodedCorpus, shapes: Sequence[CropShape], seed: int) -> None:
        self._coded = coded
        self._seed = seed
        # Shapes that no utterance is long enough for are left out. For each of the others: the utterances that are
        # long enough, and their cumulative lengths.
        longest = int(coded.num_frames.max())
        self._shapes = [shape for shape in shapes if shape.num_frames <= longest]
        if not self._shapes:
            raise PretrainError(f"No utterance of the corpus has {shapes[0].num_frames} frames. Make a larger one.")
        self._choices = []
        for shape in self._shapes:
            numbers = np.flatnonzero(coded.num_frames >= shape.num_frames)
            self._choices.append((numbers, np.cumsum(coded.num_frames[numbers])))

    def batch(self, step: int) -> Crops:
        """Crops of step `step`."""
        random = np.random.default_rng((self._seed, step))
        shares = np.array([shape.share for shape in self._shapes])
        kind = int(random.choice(len(shares), p=shares / shares.sum()))
        drawn = [self._crop(random, kind) for _ in range(self._shapes[kind].num_crops)]
        waveform = torch.from_numpy(np.stack([samples for samples, _ in drawn]))
        gains = torch.tensor(10 ** (random.uniform(*_GAIN_DB, size=(len(drawn), 1)) / 20), dtype=torch.float32)
        peaks = waveform.abs().amax(dim=1, keepdim=True).clamp(min=1e-6)
        return Crops(waveform, torch.stack([codes for _, codes in drawn]), gains.minimum(_LOUDEST_PEAK / peaks))

    def _crop(self, random: np.random.Generator, kind: int) -> tuple[NDArray[np.float32], Tensor]:
        """A piece of an utterance, which is drawn with a probability proportional to its length."""
        num_frames = self._shapes[kind].num_frames
        numbers, ends = self._choices[kind]
        number = int(numbers[np.searchsorted(ends, random.integers(ends[-1]), side="right")])
        codes = self._coded.codes(number)
        first = int(random.integers(len(codes) - num_frames + 1))
        audio = self._coded.corpus.utterance(number).audio
        piece = np.zeros(num_frames * SAMPLES_PER_FRAME, dtype=np.float32)
        found = audio[first * SAMPLES_PER_FRAME : (first + num_frames) * SAMPLES_PER_FRAME]
        piece[: len(found)] = found
        return piece / np.float32(FULL_SCALE), codes[first : first + num_frames]
