"""The way through a matrix is the one that openai-whisper finds, run here as the Python it is compiled from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from whisper import timing

from backend.transcription.dtw import warp_times


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "backtrace", timing.backtrace.py_func)


@pytest.mark.parametrize(("num_tokens", "num_moments"), [(1, 1), (1, 30), (30, 1), (2, 3), (7, 60), (40, 40), (60, 7)])
@pytest.mark.parametrize("kind", ["any", "many equally cheap", "some not a number"])
def test_the_way_is_that_of_whisper(num_tokens: int, num_moments: int, kind: str) -> None:
    costs = np.random.default_rng(num_tokens).standard_normal((num_tokens, num_moments)).astype(np.float32)
    if kind == "many equally cheap":
        costs = np.round(costs)
    elif kind == "some not a number":
        costs[:, num_moments // 2 :] = np.nan
    expected = timing.dtw_cpu.py_func(costs.astype(np.float64))
    np.testing.assert_array_equal(warp_times(torch.from_numpy(costs)), expected)
