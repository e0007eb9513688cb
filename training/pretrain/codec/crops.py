"""Draws training batches from a corpus: a step's crops depend on the seed and the step alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.pretrain.codec.frame_codes import CodedCorpus, samples_of
from training.pretrain.codec.job import SAMPLES_PER_FRAME, CropShape
from training.pretrain.corpus.channels import through_channel
from training.pretrain.errors import PretrainError

# Recordings are not all as loud as the engines.
_GAIN_DB = (-12.0, 6.0)
_LOUDEST_PEAK = 0.99
_RECORDED_SHARE = 0.15


class Crops(NamedTuple):
    """A batch of pieces of utterances that begin and end with a codec frame."""

    waveform: Tensor
    """(crops, samples), float32 in [-1, 1]."""
    codes: Tensor
    """(crops, frames, codebooks), int64: from the analysis of the whole utterances."""
    gains: Tensor
    """(crops, 1): factor applied to the encoder's input."""
    is_analysed: Tensor
    """(crops,), bool: whether the analysis was given the same samples, which those changed by a channel are not."""


class CropSource:
    """An endless stream of batches with random access by step."""

    def __init__(
        self, coded: CodedCorpus, shapes: Sequence[CropShape], seed: int, *, recordings: CodedCorpus | None = None
    ) -> None:
        """Draw from `coded`, and sometimes from `recordings` if given."""
        self._coded = coded
        self._seed = seed
        self._recordings = recordings
        # Shapes that no utterance is long enough for are left out.
        longest = int(coded.num_frames.max())
        self._shapes = [shape for shape in shapes if shape.num_frames <= longest]
        if not self._shapes:
            raise PretrainError(f"No utterance of the corpus has {shapes[0].num_frames} frames. Make a larger one.")
        self._choices = []
        self._recorded_choices = []
        for shape in self._shapes:
            self._choices.append(_long_enough(coded, shape))
            if recordings is not None:
                self._recorded_choices.append(_long_enough(recordings, shape))

    def batch(self, step: int, *, channel_share: float = 0.0) -> Crops:
        """Crops of step `step`, a share of them as over telephones and in rooms."""
        random, shape, utterances = self.draw(step)
        drawn = [
            cut(samples_of(source.corpus, number).numpy(), source.codes(number), shape.num_frames, random)
            for source, number in utterances
        ]
        # From a generator of their own, so that the other draws of a step are the same for any share.
        channels = np.random.default_rng((self._seed, step, 1))
        changed = channels.random(len(drawn)) < channel_share
        sounds = [
            through_channel(samples, channels) if is_changed else samples
            for (samples, _), is_changed in zip(drawn, changed, strict=True)
        ]
        waveform = torch.from_numpy(np.stack(sounds))
        codes = torch.stack([codes for _, codes in drawn])
        return Crops(waveform, codes, draw_gains(waveform, random), torch.from_numpy(~changed))

    def draw(self, step: int) -> tuple[np.random.Generator, CropShape, list[tuple[CodedCorpus, int]]]:
        """What the crops of a step are cut from, utterances and their shape, and the generator for all that follows.

        An utterance is drawn with a probability proportional to its length.
        """
        random = np.random.default_rng((self._seed, step))
        shares = np.array([shape.share for shape in self._shapes])
        kind = int(random.choice(len(shares), p=shares / shares.sum()))
        shape = self._shapes[kind]
        return random, shape, [self._utterance(random, kind) for _ in range(shape.num_crops)]

    def _utterance(self, random: np.random.Generator, kind: int) -> tuple[CodedCorpus, int]:
        source, (numbers, ends) = self._coded, self._choices[kind]
        if self._recordings is not None and random.random() < _RECORDED_SHARE and len(self._recorded_choices[kind][0]):
            source, (numbers, ends) = self._recordings, self._recorded_choices[kind]
        return source, int(numbers[np.searchsorted(ends, random.integers(ends[-1]), side="right")])


def cut(
    samples: NDArray[np.float32], codes: Tensor, num_frames: int, random: np.random.Generator
) -> tuple[NDArray[np.float32], Tensor]:
    """A random piece of an utterance (samples,) with its codes (frames, codebooks); silence fills the last frame."""
    first = int(random.integers(len(codes) - num_frames + 1))
    piece = np.zeros(num_frames * SAMPLES_PER_FRAME, dtype=np.float32)
    found = samples[first * SAMPLES_PER_FRAME : (first + num_frames) * SAMPLES_PER_FRAME]
    piece[: len(found)] = found
    return piece, codes[first : first + num_frames]


def draw_gains(waveform: Tensor, random: np.random.Generator) -> Tensor:
    """Factors (crops, 1) for crops (crops, samples), none of which is clipped by its own."""
    gains = torch.tensor(10 ** (random.uniform(*_GAIN_DB, size=(len(waveform), 1)) / 20), dtype=torch.float32)
    return gains.minimum(_LOUDEST_PEAK / waveform.abs().amax(dim=1, keepdim=True).clamp(min=1e-6))


def _long_enough(coded: CodedCorpus, shape: CropShape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The utterances that are long enough for a crop, and their cumulative lengths."""
    numbers = np.flatnonzero(coded.num_frames >= shape.num_frames)
    return numbers, np.cumsum(coded.num_frames[numbers])
