"""Which token belongs to which moment: Whisper's dynamic time warping, without a compiler.

openai-whisper has it compiled when it is first used, which costs each process seconds of computing and starts a thread
for every core. Along the diagonals of the matrix nothing depends on its neighbours, so numpy does the same at once.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

# Where the cheapest way came from, as Whisper numbers it.
_BOTH, _TOKEN, _MOMENT = 0, 1, 2


def warp_times(costs: torch.Tensor) -> NDArray[np.int64]:
    """The cheapest way through costs (tokens, moments), from the first to the last of both; indices (2, steps).

    Takes the place of `whisper.timing.dtw` and finds the same way, also where several are equally cheap.
    """
    return _walk_back(_came_from(costs.double().cpu().numpy()))


def _came_from(costs: NDArray[np.float64]) -> NDArray[np.int8]:
    """For each cell (tokens + 1, moments + 1) the step that leads there."""
    num_tokens, num_moments = costs.shape
    came_from = np.full((num_tokens + 1, num_moments + 1), _MOMENT, np.int8)
    came_from[:, 0] = _TOKEN
    if not costs.size:
        return came_from
    diagonals = _diagonals(costs)
    # Ways that end on the diagonal before and the one before that, by token. Single precision, as Whisper adds them.
    before = np.full(num_tokens + 1, np.inf, np.float32)
    last = before.copy()
    before[0] = 0.0
    for number, diagonal in enumerate(diagonals):
        first, end = max(0, number - num_moments + 1), min(num_tokens, number + 1)
        both, token, moment = before[first:end], last[first:end], last[first + 1 : end + 1]
        is_both, is_token = (both < token) & (both < moment), (token < both) & (token < moment)
        steps = np.where(is_both, _BOTH, np.where(is_token, _TOKEN, _MOMENT))
        cheapest = np.where(is_both, both, np.where(is_token, token, moment))
        tokens = np.arange(first, end)
        came_from[tokens + 1, number - tokens + 1] = steps
        before, last = last, np.full(num_tokens + 1, np.inf, np.float32)
        last[first + 1 : end + 1] = diagonal[first:end] + cheapest
    return came_from


def _diagonals(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Costs (tokens, moments) by diagonal, (tokens + moments - 1, tokens): each token one moment before the last."""
    num_tokens, num_moments = costs.shape
    width = num_tokens + num_moments
    padded = np.pad(costs, ((0, 0), (0, num_tokens)))
    return np.ascontiguousarray(padded.ravel()[: num_tokens * (width - 1)].reshape(num_tokens, width - 1).T)


def _walk_back(came_from: NDArray[np.int8]) -> NDArray[np.int64]:
    token, moment = came_from.shape[0] - 1, came_from.shape[1] - 1
    came_from[0, :] = _MOMENT
    came_from[:, 0] = _TOKEN
    steps = []
    while token > 0 or moment > 0:
        steps.append((token - 1, moment - 1))
        step = came_from[token, moment]
        token -= step != _MOMENT
        moment -= step != _TOKEN
    return np.array(steps[::-1], np.int64).reshape(-1, 2).T
