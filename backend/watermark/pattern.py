"""The mark's pattern: which parts of the spectrum become a little louder or softer, and when."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

NUM_COLUMNS = 50
"""Of tiles in time; then the pattern begins again."""

NUM_BANDS = 66
"""Of tiles in frequency. Telephones pass on half of them."""

STEP_SECONDS = 0.01
"""Between two spectra, of the marker and of the detector."""

STEPS_PER_COLUMN = 4
PERIOD_STEPS = NUM_COLUMNS * STEPS_PER_COLUMN
LOWEST_HZ, BAND_HZ = 275.0, 100.0
HIGHEST_HZ = LOWEST_HZ + NUM_BANDS * BAND_HZ

PAYLOAD_BITS = 16
CODE_BITS = 128
"""Each payload is sent as a code word of so many bits; any two of them differ in 40 or more."""

PUBLIC_KEY = b"made by Encore"
"""In every copy, so that every copy recognises what any of them has made. A change makes earlier marks unreadable."""


@dataclass(frozen=True, eq=False)
class PayloadTiles:
    """Where an installation writes the bits of a code word, and with which sign.

    Attributes:
        bits: (columns, bands) the bit a tile carries; -1 in tiles of the public mark.
        signs: (columns, bands) of a one; 0 in tiles of the public mark.
    """

    bits: NDArray[np.int64]
    signs: NDArray[np.float64]


@cache
def public_signs() -> NDArray[np.float64]:
    """(columns, bands) of the mark that every copy looks for: 1 louder, -1 softer, 0 in the tiles of the payload."""
    random = _Random(PUBLIC_KEY)
    is_public = np.zeros(NUM_COLUMNS * NUM_BANDS)
    is_public[random.order(len(is_public))[: len(is_public) // 2]] = 1
    return (is_public * random.signs(len(is_public))).reshape(NUM_COLUMNS, NUM_BANDS)


@cache
def payload_tiles(installation_key: bytes) -> PayloadTiles:
    """Where and how the installation with this key writes; to others it looks like noise."""
    is_free = public_signs().reshape(-1) == 0
    random = _Random(b"payload" + installation_key)
    bits = np.full(len(is_free), -1)
    num_free = int(is_free.sum())
    bits[is_free] = (np.arange(num_free) % CODE_BITS)[random.order(num_free)]
    signs = np.where(is_free, random.signs(len(is_free)), 0.0)
    return PayloadTiles(bits.reshape(NUM_COLUMNS, NUM_BANDS), signs.reshape(NUM_COLUMNS, NUM_BANDS))


@cache
def code_words() -> NDArray[np.float32]:
    """(payloads, code bits) of +1 and -1: a linear code that a fixed random matrix generates."""
    generator = _Random(b"code").signs(PAYLOAD_BITS * CODE_BITS).reshape(PAYLOAD_BITS, CODE_BITS) > 0
    payloads = np.arange(2**PAYLOAD_BITS)
    words = np.zeros((len(payloads), CODE_BITS), dtype=bool)
    for position, row in enumerate(generator):
        words ^= ((payloads >> position) & 1).astype(bool)[:, None] & row
    return np.where(words, 1.0, -1.0).astype(np.float32)


def signs_of(installation_key: bytes | None, payload: int) -> NDArray[np.float64]:
    """(columns, bands) of everything that is written: the public mark, and with a key the payload."""
    signs = public_signs()
    if installation_key is None:
        return signs
    tiles = payload_tiles(installation_key)
    word = code_words()[payload]
    return signs + np.where(tiles.bits >= 0, word[tiles.bits], 0.0) * tiles.signs


class _Random:
    """A stream of bits that is the same in every version of every library: SHAKE-256 of the seed."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._number = seed, 0

    def signs(self, count: int) -> NDArray[np.float64]:
        bits = np.unpackbits(np.frombuffer(self._bytes((count + 7) // 8), dtype=np.uint8))[:count]
        return bits.astype(np.float64) * 2 - 1

    def order(self, count: int) -> NDArray[np.int64]:
        return np.argsort(np.frombuffer(self._bytes(8 * count), dtype="<u8"), kind="stable")

    def _bytes(self, count: int) -> bytes:
        self._number += 1
        return hashlib.shake_256(self._number.to_bytes(4, "big") + self._seed).digest(count)
