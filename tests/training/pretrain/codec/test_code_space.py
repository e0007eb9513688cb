"""The directions in which features differ: found in any data that is finite, however little there is in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from tests.training.pretrain.tiny_corpus import tone
from training.pretrain.codec.code_space import Components, _principal_directions
from training.pretrain.codec.frame_features import Features, FrameFeatures
from training.pretrain.errors import PretrainError

WIDTH = 6


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def orthonormal(size: int, seed: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=random(seed), dtype=torch.float64)).Q


def fitted(features: Tensor, width: int = WIDTH) -> Components:
    components = Components(features.shape[1], width)
    components.fit(features)
    return components


def assert_sound(components: Components, features: Tensor) -> None:
    """Orthonormal where there are as many features, finite, and at the size that the encoder starts near."""
    width = min(components.basis.shape)
    columns = components.basis[:, :width]
    torch.testing.assert_close(columns.t() @ columns, torch.eye(width), atol=1e-5, rtol=0)
    assert torch.count_nonzero(components.basis[:, width:]) == 0
    assert components(features).isfinite().all()


@given(
    num_features=st.integers(1, 40),
    num_frames=st.integers(1, 60),
    rank=st.integers(0, 40),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6]),
    offset=st.sampled_from([0.0, -7.0, 1e4]),
    seed=st.integers(0, 9),
)
@example(num_features=40, num_frames=60, rank=0, scale=1.0, offset=0.0, seed=0)  # nothing but zeros
@example(num_features=40, num_frames=60, rank=0, scale=1.0, offset=1e4, seed=0)  # constant
@example(num_features=40, num_frames=1, rank=3, scale=1.0, offset=0.0, seed=0)  # a single frame
@example(num_features=40, num_frames=60, rank=2, scale=1.0, offset=0.0, seed=0)  # a rank far below the size
def test_directions_are_found_in_data_of_any_rank(
    num_features: int, num_frames: int, rank: int, scale: float, offset: float, seed: int
):
    draw = random(seed)
    weights = torch.randn(num_frames, rank, generator=draw)
    features = scale * weights @ torch.randn(rank, num_features, generator=draw) + offset
    components = fitted(features)
    assert_sound(components, features)
    if 0 < rank <= WIDTH <= num_features and num_frames > 1 and offset == 0:
        # Everything there is fits into the directions, and comes out with the variance promised.
        torch.testing.assert_close(
            components(features).double().var(dim=0).sum(), torch.tensor(WIDTH, dtype=torch.float64), rtol=1e-3, atol=0
        )


@given(
    variances=st.lists(st.sampled_from([0.0, 1e-9, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 1.01, 50.0]), min_size=1, max_size=30),
    seed=st.integers(0, 9),
)
def test_as_much_variance_is_kept_as_can_be_even_between_nearly_equal_directions(variances: list[float], seed: int):
    size, num_directions = len(variances), min(4, len(variances))
    turned = orthonormal(size, seed)
    covariance = turned @ torch.tensor(variances, dtype=torch.float64).diag() @ turned.t()
    found = _principal_directions(covariance, num_directions)
    kept = (found * (covariance @ found)).sum()
    assert float(kept) == pytest.approx(sum(sorted(variances)[-num_directions:]), rel=1e-2, abs=1e-12)
    assert torch.allclose(found.t() @ found, torch.eye(num_directions, dtype=torch.float64), atol=1e-9)


def test_a_corpus_of_tones_has_directions():
    """Its covariance has half the rank of its size; an eigenvalue routine has given up on it."""
    measure = FrameFeatures(16_000)
    found = [measure(torch.from_numpy(tone(number).astype(np.float32) / 32_768)) for number in range(16)]
    for values in (torch.cat(part) for part in Features(*zip(*found, strict=True))):
        components = fitted(values, 64)
        assert_sound(components, values)
        kept = components(values).double().var(dim=0).sum() / components.get_buffer("scale").double() ** 2
        assert float(kept) == pytest.approx(float(values.double().var(dim=0).sum()), rel=1e-3)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf"), None])
def test_what_is_not_finite_and_nothing_at_all_are_refused(broken: float | None):
    features = torch.randn(0 if broken is None else 20, 8, generator=random(0))
    if broken is not None:
        features[3, 5] = broken
    with pytest.raises(PretrainError, match="not finite"):
        fitted(features)


@pytest.mark.parametrize(("num_features", "rank"), [(20, 20), (20, 9), (8, 8)])
def test_directions_are_recovered_from_an_imitation_that_shrinks(num_features: int, rank: int):
    draw = random(0)
    features = torch.randn(4000, rank, generator=draw) @ torch.randn(rank, num_features, generator=draw) + 2
    original = fitted(features, 8)
    vectors = original(features)
    noise = torch.randn(vectors.shape, generator=draw)
    found = Components(num_features, 8)
    found.recover(features, vectors * torch.linspace(1, 0.7, 8) + 0.2 * noise)
    assert (found(features) - vectors).square().mean() < 0.02 * vectors.square().mean()


def test_an_encoder_that_says_the_same_of_everything_imitates_nothing():
    features = torch.randn(100, 12, generator=random(0))
    with pytest.raises(PretrainError, match="do not follow"):
        Components(12, 4).recover(features, torch.ones(100, 4))
