"""Optimal transport between normal distributions: what it makes of one is the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.model.normal_transport import transport


def covariance(seed: int, size: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    mixed = draw.normal(size=(size, 3 * size)) * draw.uniform(0.2, 3, (size, 1))
    return np.cov(mixed)


@given(seeds=st.tuples(st.integers(0, 1000), st.integers(0, 1000)), size=st.integers(2, 12))
def test_what_is_moved_has_the_wanted_covariance(seeds, size):
    own, wanted = (covariance(seed, size) for seed in seeds)
    matrix = transport(own, wanted)
    assert matrix @ own @ matrix.T == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    # No rotation in it: of all matrices that do this, the one that moves least.
    assert matrix == pytest.approx(matrix.T, abs=1e-6)


@given(seed=st.integers(0, 1000), size=st.integers(2, 12))
def test_what_is_there_already_is_not_moved(seed, size):
    own = covariance(seed, size)
    assert transport(own, own) == pytest.approx(np.eye(size), abs=1e-4)
