"""Samples at another rate: the one resampler of the product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import soxr
from numpy.typing import NDArray

_QUALITY = "HQ"


def resample(samples: NDArray[np.float32], rate: int, wanted_rate: int) -> NDArray[np.float32]:
    """Bring samples (samples,) to another rate; at the wanted rate already, they are returned as they are."""
    if rate == wanted_rate:
        return samples
    return np.ascontiguousarray(soxr.resample(samples, rate, wanted_rate, quality=_QUALITY), dtype=np.float32)


def resample_blocks(
    blocks: Iterable[NDArray[np.float32]], rate: int, wanted_rate: int
) -> Iterator[NDArray[np.float32]]:
    """Bring consecutive blocks (samples,) to another rate, without seams."""
    stream = resampler(rate, wanted_rate)
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def resampler(rate: int, wanted_rate: int) -> soxr.ResampleStream:
    """What brings a stream of mono samples to another rate where its blocks are not at hand as an iterable."""
    return soxr.ResampleStream(rate, wanted_rate, 1, dtype="float32", quality=_QUALITY)
