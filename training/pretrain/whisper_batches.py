"""Draws what the transcriber hears in a step; it depends on the seed and the step alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.pretrain.corpus import FULL_SCALE, Corpus
from training.pretrain.engines import SAMPLE_RATE_HZ
from training.pretrain.whisper_job import NUM_POSITIONS, SAMPLES_PER_POSITION, WhisperJob
from training.pretrain.whisper_spelling import Said

# Utterances of about the same length hear little of each other's silence: this many neighbours by length to draw from.
_NUM_NEIGHBOURS = 600
_MAX_UTTERANCES = 32
_LONGEST_SECONDS = 29.0
_JOINED_SECONDS = 11.0
_MAX_GAP_SECONDS = 0.6
_LEAD_SECONDS, _LATE_LEAD_SECONDS, _LATE_SHARE = 0.3, 0.9, 0.1
_MAX_TAIL_SECONDS = 0.6
_SILENCE_SECONDS = (0.5, 4.0)
# The corpus has digital silence around its speech, recordings have not.
_NOISY_SHARE = 0.5
_SIGNAL_TO_NOISE_DB = (20.0, 60.0)
_SPEECH_RMS = 0.07


class Piece(NamedTuple):
    """A few seconds of sound, float32 (samples,), and what is said in it: nothing, or utterances in order."""

    samples: NDArray[np.float32]
    said: list[Said]


class SpeechBatch(NamedTuple):
    """Pieces of a step, filled up with digital silence as Whisper does: float32 (rows, samples)."""

    samples: Tensor
    said: list[list[Said]]


class SpeechSource:
    """An endless stream of batches that can be entered at any step."""

    def __init__(self, corpus: Corpus, job: WhisperJob) -> None:
        self._corpus = corpus
        self._job = job
        self._lengths = corpus.num_samples
        self._by_length = np.argsort(self._lengths, kind="stable")

    def batch(self, step: int) -> SpeechBatch:
        """The pieces of step `step`."""
        random = np.random.default_rng((self._job.seed, step))
        drawn = random.random()
        if drawn < self._job.long_share:
            pieces = self._long_pieces(random)
            return fill_up(pieces, NUM_POSITIONS)
        num_joined = int(random.integers(2, 4)) if drawn < self._job.long_share + self._job.joined_share else 1
        pieces = self._similar_pieces(random, num_joined)
        longest = max(len(piece.samples) for piece in pieces)
        # More silence than needed, most often a little.
        spare = int(random.exponential(30))
        return fill_up(pieces, min(NUM_POSITIONS, -(-longest // SAMPLES_PER_POSITION) + spare))

    def _similar_pieces(self, random: np.random.Generator, num_joined: int) -> list[Piece]:
        anchor = int(random.integers(len(self._by_length)))
        if num_joined > 1:
            # Two or three of the shorter utterances, so that the whole is as long as what a transcriber is given.
            longest = _JOINED_SECONDS / num_joined * SAMPLE_RATE_HZ
            num_short = int(np.searchsorted(self._lengths[self._by_length], longest))
            anchor = int(random.integers(max(1, num_short)))
        low = max(0, min(anchor - _NUM_NEIGHBOURS // 2, len(self._by_length) - _NUM_NEIGHBOURS))
        nearby = self._by_length[low : low + _NUM_NEIGHBOURS]
        length = int(self._lengths[self._by_length[anchor]]) * num_joined + SAMPLE_RATE_HZ // 2
        num_pieces = self._job.positions_per_step * SAMPLES_PER_POSITION // length
        num_pieces = max(2, min(num_pieces, _MAX_UTTERANCES * self._job.positions_per_step // 2400))
        return [self._piece(random, random.choice(nearby, num_joined)) for _ in range(num_pieces)]

    def _long_pieces(self, random: np.random.Generator) -> list[Piece]:
        """Half of them one utterance before a long silence, half as many as fit."""
        pieces = []
        for _ in range(max(2, self._job.positions_per_step // NUM_POSITIONS)):
            numbers = [int(random.integers(len(self._lengths)))]
            if random.random() < 0.5:
                seconds = random.uniform(8.0, _LONGEST_SECONDS - 4.0)
                while self._lengths[numbers].sum() / SAMPLE_RATE_HZ + _MAX_GAP_SECONDS * len(numbers) < seconds:
                    numbers.append(int(random.integers(len(self._lengths))))
                numbers = numbers[:-1] or numbers
            pieces.append(self._piece(random, np.array(numbers)))
        return pieces

    def _piece(self, random: np.random.Generator, numbers: NDArray[np.int64]) -> Piece:
        if random.random() < self._job.silent_share:
            num_samples = int(random.uniform(*_SILENCE_SECONDS) * SAMPLE_RATE_HZ)
            quiet = random.standard_normal(num_samples).astype(np.float32)
            return Piece(quiet * np.float32(10 ** random.uniform(-6, -2)), [])
        is_late = random.random() < _LATE_SHARE
        lead = random.uniform(0, _LATE_LEAD_SECONDS if is_late else _LEAD_SECONDS)
        gaps = [lead, *random.uniform(0, _MAX_GAP_SECONDS, len(numbers) - 1)]
        tail = random.uniform(0, _MAX_TAIL_SECONDS)
        piece = join([self._spoken(int(number)) for number in numbers], gaps, tail)
        if random.random() < _NOISY_SHARE:
            level = _SPEECH_RMS * 10 ** (-random.uniform(*_SIGNAL_TO_NOISE_DB) / 20)
            noise = random.standard_normal(len(piece.samples)).astype(np.float32)
            return piece._replace(samples=piece.samples + noise * np.float32(level))
        return piece

    def _spoken(self, number: int) -> tuple[NDArray[np.float32], str]:
        utterance = self._corpus.utterance(number)
        return utterance.audio.astype(np.float32) / np.float32(FULL_SCALE), utterance.text


def join(spoken: list[tuple[NDArray[np.float32], str]], gaps: list[float], tail_seconds: float) -> Piece:
    """Utterances in a row, each after its gap in seconds."""
    sounds, said = [], []
    num_samples = 0
    for (audio, text), gap in zip(spoken, gaps, strict=True):
        silence = np.zeros(int(gap * SAMPLE_RATE_HZ), dtype=np.float32)
        start = num_samples + len(silence)
        num_samples = start + len(audio)
        sounds += [silence, audio]
        said.append(Said(text, start / SAMPLE_RATE_HZ, num_samples / SAMPLE_RATE_HZ))
    sounds.append(np.zeros(int(tail_seconds * SAMPLE_RATE_HZ), dtype=np.float32))
    return Piece(np.concatenate(sounds), said)


def fill_up(pieces: list[Piece], num_positions: int) -> SpeechBatch:
    """Pieces as rows of so many encoder positions."""
    samples = np.zeros((len(pieces), num_positions * SAMPLES_PER_POSITION), dtype=np.float32)
    for row, piece in zip(samples, pieces, strict=True):
        row[: len(piece.samples)] = piece.samples[: len(row)]
    return SpeechBatch(torch.from_numpy(samples), [piece.said for piece in pieces])
