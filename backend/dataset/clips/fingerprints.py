"""Finds the same sound in other files: with another codec, level, start or cut, but not the same words said again.

Sixty-four bits per 16 ms say whether the energy difference of neighbouring bands rises or falls in time (J. Haitsma and
T. Kalker, "A highly robust audio fingerprinting system", ISMIR 2002). The bands are so narrow that they separate
the harmonics of a voice: another voice with the same timing, as two voices of a speech engine have, is another sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from backend.audio.resample import resample

# All that is looked at lies below half of it.
_RATE = 8_000
# A long window moves in short steps, so that a cut between two steps changes little.
_WINDOW_SAMPLES = 2_048
_STEP_SAMPLES = 128
_STEPS_PER_SECOND = _RATE / _STEP_SAMPLES
_NUM_BITS = 64
# What every telephone lets through.
_EDGES = np.round(np.geomspace(250.0, 3_000.0, _NUM_BITS + 2) * _WINDOW_SAMPLES / _RATE).astype(int)
# Of the loudest band, and on top of it the least that counts as rising: the bits of pauses are all zero, and not those
# of their noise.
_FLOOR = 3e-4
_RISE = 0.1
# Sentences that differ in one word differ for half a second at least.
_COMPARED_STEPS = round(0.5 * _STEPS_PER_SECOND)
_MIN_STEPS = round(1.0 * _STEPS_PER_SECOND)
# Places worth a closer look share these of the bits, from 460 to 860 Hz, which noise and telephones change least.
_LOOKED_UP_BITS, _LOOKED_UP_SHIFT = 0xFFFF, 32
# Neighbouring words hardly differ, so every fourth is looked up.
_LOOKED_UP_EVERY = 4
_MIN_VOTES = 3
_MAX_PLACES = 12
# More steps than any sound has.
_FARTHEST = 1 << 32


def sound_fingerprint(samples: NDArray[np.float32], sample_rate: int) -> str:
    """What a sound (samples,) is recognised by, in hexadecimal: a word of 64 bits per 16 ms."""
    sound = resample(samples, sample_rate, _RATE)
    sound = np.pad(sound, (0, max(0, _WINDOW_SAMPLES + _STEP_SAMPLES - len(sound))))
    windows = np.lib.stride_tricks.sliding_window_view(sound, _WINDOW_SAMPLES)[::_STEP_SAMPLES]
    power = np.square(np.abs(np.fft.rfft(windows * np.hanning(_WINDOW_SAMPLES).astype(np.float32), axis=1)))
    bands = np.add.reduceat(power, _EDGES, axis=1)[:, : _NUM_BITS + 1]
    levels = np.log(bands + bands.max(initial=0.0) * _FLOOR + 1e-12)
    is_rising = np.diff(np.diff(levels, axis=1), axis=0) > _RISE
    return np.packbits(is_rising, axis=1).tobytes().hex()


class SoundIndex:
    """Fingerprints of a set, each to be looked for in the ones before it."""

    def __init__(self, fingerprints: Sequence[str]) -> None:
        self._words = [_words(text) for text in fingerprints]
        keys = _keys(np.concatenate([np.zeros(0, np.uint64), *self._words]))
        order = np.argsort(keys, kind="stable")
        self._sorted_keys = keys[order]
        lengths = [len(each) for each in self._words]
        self._owners = np.repeat(np.arange(len(lengths)), lengths)[order]
        self._steps = np.concatenate([np.zeros(0, np.int64), *(np.arange(length) for length in lengths)])[order]

    def heard_before(self, index: int, earlier: Sequence[int], min_similarity: float) -> tuple[float, int | None]:
        """How much of a sound is in `earlier` ones, 0 to 1, and which of them holds the most of it."""
        own = self._words[index]
        is_heard = np.zeros(len(own), bool)
        most, twin = 0, None
        for other, shift in self._places(own, np.asarray(earlier, dtype=np.int64)):
            mine, theirs = _overlap(own, self._words[other], shift)
            if _worst_agreement(mine, theirs) >= min_similarity:
                begin = max(0, shift)
                is_heard[begin : begin + len(mine)] = True
                if len(mine) > most:
                    most, twin = len(mine), other
        return float(is_heard.mean()) if len(own) else 0.0, twin

    def may_hold(self, fingerprint: str) -> set[int]:
        """Which sounds of the set may be found to hold some of this one; no other ever is."""
        theirs = _keys(_words(fingerprint))
        keys, owners, steps = self._looked_up
        first = np.searchsorted(keys, theirs, side="left")
        found, counts = _ranges(first, np.searchsorted(keys, theirs, side="right"))
        shifts = steps[found] - np.repeat(np.arange(len(theirs)), counts)
        places, votes = np.unique(owners[found] * _FARTHEST + shifts, return_counts=True)
        return {(int(place) + _FARTHEST // 2) // _FARTHEST for place in places[votes >= _MIN_VOTES]}

    @cached_property
    def _looked_up(self) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64]]:
        """Keys that `_places` looks up for all sounds, sorted, with their owners and steps."""
        is_looked_up = (self._steps % _LOOKED_UP_EVERY == 0) & (self._sorted_keys != 0)
        return self._sorted_keys[is_looked_up], self._owners[is_looked_up], self._steps[is_looked_up]

    def _places(self, own: NDArray[np.uint64], earlier: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Where to look closer: other sounds, and how much later than `own` they begin, by words they share."""
        keys = _keys(own)
        steps = np.arange(0, len(own), _LOOKED_UP_EVERY)
        steps = steps[keys[steps] != 0]  # silence is everywhere
        first = np.searchsorted(self._sorted_keys, keys[steps], side="left")
        found, counts = _ranges(first, np.searchsorted(self._sorted_keys, keys[steps], side="right"))
        owners, shifts = self._owners[found], np.repeat(steps, counts) - self._steps[found]
        is_earlier = np.isin(owners, earlier)
        # One number for both, which sorts faster than a pair.
        places, votes = np.unique((owners * _FARTHEST + shifts)[is_earlier], return_counts=True)
        chosen = np.argsort(-votes, kind="stable")[:_MAX_PLACES]
        pairs = [divmod(int(places[at]) + _FARTHEST // 2, _FARTHEST) for at in chosen if votes[at] >= _MIN_VOTES]
        return [(owner, shift - _FARTHEST // 2) for owner, shift in pairs]


def _ranges(first: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of each range `first` to `end` one after the other, without a loop, and how many each has."""
    counts = end - first
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum()), counts


def _words(fingerprint: str) -> NDArray[np.uint64]:
    content = bytes.fromhex(fingerprint)
    # Datasets from before fingerprints had 64 bits can still be edited; theirs match nothing.
    return np.frombuffer(content[: len(content) // 8 * 8], dtype=">u8").astype(np.uint64)


def _keys(words: NDArray[np.uint64]) -> NDArray[np.uint16]:
    return ((words >> np.uint64(_LOOKED_UP_SHIFT)) & np.uint64(_LOOKED_UP_BITS)).astype(np.uint16)


def _overlap(
    one: NDArray[np.uint64], other: NDArray[np.uint64], shift_steps: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The words of both where they lie over each other."""
    left, right = one[max(0, shift_steps) :], other[max(0, -shift_steps) :]
    length = min(len(left), len(right))
    return left[:length], right[:length]


def _worst_agreement(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> float:
    """Share of equal bits in the worst half second of sound; 0 if there is less than a second of sound."""
    is_sound = (one | other) != 0
    bits = np.unpackbits((one ^ other)[is_sound].view(np.uint8)).reshape(-1, _NUM_BITS)
    if len(bits) < _MIN_STEPS:
        return 0.0
    sums = np.concatenate([[0], np.cumsum(bits.sum(axis=1, dtype=np.int64))])
    most = int((sums[_COMPARED_STEPS:] - sums[:-_COMPARED_STEPS]).max())
    return 1.0 - most / (_COMPARED_STEPS * _NUM_BITS)
