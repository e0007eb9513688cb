"""The mark goes into a stream as it comes, twenty milliseconds behind it."""

from __future__ import annotations

import numpy as np
import pytest

from backend.watermark.marker import Marker
from backend.watermark.pattern import CODE_BITS, NUM_BANDS, NUM_COLUMNS, code_words, payload_tiles, public_signs
from tests.backend.watermark.conftest import KEY, PAYLOAD, SAMPLE_RATE, mark

MAX_DELAY_SECONDS = 0.025
EXPECTED_SIGNS = "++-0-0--000000-+0-+0-+-0"
EXPECTED_BITS = [-1, -1, -1, 91, -1, 55, -1, -1, 50, 10, 32, 31, 25, 101, -1, -1, 85, -1, -1, 29, -1, -1, -1, 38]
EXPECTED_WORD = "++++-+++--++--------+++-"


@pytest.mark.parametrize("longest", [1, 100, 5000])
def test_a_stream_is_marked_as_the_whole_is_whatever_its_chunks(longest):
    speech = np.random.default_rng(0).standard_normal(3000 if longest == 1 else 50_000).astype(np.float32) * 0.1
    marker, random = Marker(SAMPLE_RATE, installation_key=KEY, payload=PAYLOAD), np.random.default_rng(longest)
    start, marked, num_marked = 0, [], 0
    while start < len(speech):
        end = min(len(speech), start + int(random.integers(1, longest + 1)))
        marked.append(marker.add(speech[start:end]))
        num_marked += len(marked[-1])
        assert end - num_marked <= MAX_DELAY_SECONDS * SAMPLE_RATE
        start = end
    marked.append(marker.finish())
    np.testing.assert_array_equal(np.concatenate(marked), mark(speech))


@pytest.mark.parametrize("length", [0, 1, 239, 240, 241, 480, 1000])
def test_the_length_stays(length):
    speech = np.random.default_rng(0).standard_normal(length).astype(np.float32)
    assert len(mark(speech)) == length


def test_without_strength_nothing_changes(speech):
    np.testing.assert_allclose(mark(speech, strength_db=0.0), speech, atol=1e-6)


def test_the_change_is_small_and_takes_as_much_as_it_adds(speech):
    marked = mark(speech)
    assert 10 * np.log10(np.mean(speech**2) / np.mean((marked - speech) ** 2)) > 20
    assert abs(10 * np.log10(np.mean(marked**2) / np.mean(speech**2))) < 0.2


def test_the_mark_can_be_made_at_other_rates():
    marker = Marker(16_000)
    assert len(marker.add(np.zeros(16_000, np.float32))) + len(marker.finish()) == 16_000


def test_payload_and_public_mark_share_the_tiles():
    signs, written = public_signs(), payload_tiles(KEY)
    assert signs.shape == written.bits.shape == (NUM_COLUMNS, NUM_BANDS)
    assert np.array_equal(signs == 0, written.bits >= 0)
    assert np.count_nonzero(signs) == signs.size // 2
    assert not np.array_equal(written.signs, payload_tiles(bytes(32)).signs)
    counts = np.bincount(written.bits[written.bits >= 0], minlength=CODE_BITS)
    assert counts.max() - counts.min() <= 1


def test_code_words_are_far_apart():
    """The code is linear, so that the distances from one word are those from any."""
    words = code_words()
    num_different = (CODE_BITS - words[1:] @ words[0]) / 2
    assert num_different.min() >= 40


def test_the_pattern_is_what_it_was():
    """A change would make everything marked before unreadable."""
    assert "".join("-0+"[int(sign) + 1] for sign in public_signs()[0, :24]) == EXPECTED_SIGNS
    assert payload_tiles(KEY).bits[0, :24].tolist() == EXPECTED_BITS
    assert "".join("-0+"[int(bit) + 1] for bit in code_words()[PAYLOAD, :24]) == EXPECTED_WORD
