from __future__ import annotations

import torch

from tests.benchmarks.precision import Forced, Spoken, compare, errors, likeness, paired_interval

CODEBOOKS = 3


def forced(logits):
    return Forced(logits=list(logits))


def test_the_same_logits_do_not_diverge_also_where_codes_are_forbidden():
    logits = torch.randn(4 * CODEBOOKS, 16).double()
    logits[::CODEBOOKS, 3] = -torch.inf
    assert compare([forced(logits)], [forced(logits)], CODEBOOKS) == [(0.0, 1.0)] * CODEBOOKS


def test_a_codebook_that_diverges_is_named():
    logits = torch.randn(4 * CODEBOOKS, 16).double()
    other = logits.clone()
    other[1::CODEBOOKS] = -other[1::CODEBOOKS]
    (first, same), (second, different), (third, _) = compare([forced(logits)], [forced(other)], CODEBOOKS)
    assert first == third == 0
    assert second > 0.1
    assert same == 1
    assert different < 1


def spoken(text, heard, similarity):
    return Spoken(text, heard, similarity, Forced())


def test_intervals_are_of_differences_in_the_same_sentence():
    before = [spoken("one two three", "one two three", 0.1 * number) for number in range(8)]
    after = [spoken("one two three", "one two tree", 0.1 * number + 0.05) for number in range(8)]
    for measure, expected in ((errors, 1 / 13), (likeness, 0.05)):
        difference, low, high = paired_interval(before, after, measure)
        # Every sentence differs by as much, so there is nothing to be uncertain about.
        assert abs(difference - expected) < 1e-9
        assert high - low < 1e-9
