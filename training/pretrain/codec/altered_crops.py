"""Crops of speech that sounds like other people and other rooms than the corpus, with the codes that it then has.

An encoder that has heard only engines imitates the analysis badly for people. But the analysis can measure any sound,
so speech is altered first, its pace and pitch by resampling or its pitch alone, its colour by a channel, and analysed
afterwards.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.crops import Crops, CropSource, cut, draw_gains
from training.pretrain.codec.deep_voices import deepened, resampled
from training.pretrain.codec.frame_codes import CodedCorpus, samples_of
from training.pretrain.codec.frame_features import FrameFeatures
from training.pretrain.codec.job import SAMPLES_PER_FRAME
from training.pretrain.corpus.channels import through_channel
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ

# Beyond these, voices sound like no one's.
_SLOWEST, _FASTEST = 0.84, 1.2
# Clips of data sets have all been brought to one loudness, which can only be guessed where a recording begins.
_LEVELLED_SHARE = 0.5
_RESAMPLED_SHARE, _CHANNEL_SHARE = 0.7, 0.6


class AlteredCrops:
    """An endless stream of batches with random access by step."""

    def __init__(
        self, crops: CropSource, space: CodeSpace, *, altered_share: float, deepened_share: float = 0.0
    ) -> None:
        """Alter a share of the utterances of `crops`, and make a share of these deep; `space` is their analysis."""
        self._crops = crops
        self._space = space
        self._measure = FrameFeatures(SAMPLE_RATE_HZ)
        self._altered_share, self._deepened_share = altered_share, deepened_share

    def batch(self, step: int) -> Crops:
        """The crops of step `step`; the analysis was given the same samples for all of them."""
        random, shape, drawn = self._crops.draw(step)
        pieces = [
            cut(*self._speech(source, number, shape.num_frames, random), shape.num_frames, random)
            for source, number in drawn
        ]
        waveform = torch.from_numpy(np.stack([samples for samples, _ in pieces]))
        codes = torch.stack([codes for _, codes in pieces])
        is_levelled = torch.from_numpy(random.random((len(pieces), 1)) < _LEVELLED_SHARE)
        gains = torch.where(is_levelled, 1.0, draw_gains(waveform, random))
        return Crops(waveform, codes, gains, torch.ones(len(pieces), dtype=torch.bool))

    def _speech(
        self, source: CodedCorpus, number: int, min_frames: int, random: np.random.Generator
    ) -> tuple[NDArray[np.float32], Tensor]:
        speech = samples_of(source.corpus, number)
        if random.random() >= self._altered_share:
            return speech.numpy(), source.codes(number)
        changed = None
        if self._deepened_share and random.random() < self._deepened_share:
            changed = deepened(speech.numpy(), self._measure.median_pitch_hz(speech), random)
        if changed is None:
            changed = altered(speech.numpy(), random, min_samples=(min_frames - 1) * SAMPLES_PER_FRAME + 1)
        elif random.random() < _CHANNEL_SHARE:
            changed = through_channel(changed, random)
        return changed, self._space.encode(self._measure(torch.from_numpy(changed)))


def altered(speech: NDArray[np.float32], random: np.random.Generator, *, min_samples: int = 1) -> NDArray[np.float32]:
    """Speech (samples,) by another voice, over another channel, or both: equally loud, and not below `min_samples`."""
    if random.random() < _RESAMPLED_SHARE:
        # Pace, pitch and resonances change together, as between a large and a small speaker.
        pace = np.exp(random.uniform(np.log(_SLOWEST), np.log(_FASTEST)))
        speech = resampled(speech, max(int(len(speech) / pace), min_samples))
    return through_channel(speech, random) if random.random() < _CHANNEL_SHARE else speech
