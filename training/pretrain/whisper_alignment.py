"""Where letters and tokens are heard: guessed evenly at first, read off the encoder's letters once it hears them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.pretrain.whisper_job import POSITIONS_PER_SECOND
from training.pretrain.whisper_spelling import BLANK, Said, Spelled

Places = NDArray[np.float64]
"""Start and end of each letter (letters, 2), in encoder positions."""

# What the corpus leaves of silence before and after an utterance.
_MARGIN_SECONDS = 0.1
# A letter lasts no longer than this beyond the positions at which the encoder names it.
_REACH_POSITIONS = 4.0
# Softness of a token's edges, in positions of 20 ms.
_EDGE_POSITIONS = 1.5
_IMPOSSIBLE = -1e9


class Alignment(NamedTuple):
    """The likeliest places of letters, and how likely: log probability per letter."""

    places: Places
    score: float


def even_places(spelled: Spelled, parts: Sequence[Said]) -> Places:
    """Spread the letters of each utterance evenly over it."""
    places = np.zeros((len(spelled.letters), 2))
    for (first, last), part in zip(spelled.said, parts, strict=True):
        start = (part.start_seconds + _MARGIN_SECONDS) * POSITIONS_PER_SECOND
        end = max(start + 1.0, (part.end_seconds - _MARGIN_SECONDS) * POSITIONS_PER_SECOND)
        edges = np.linspace(start, end, last - first + 1)
        places[first:last] = np.stack([edges[:-1], edges[1:]], axis=1)
        if first > 0:
            places[first - 1] = places[first, 0]  # the gap between two utterances
    return places


def align(log_probabilities: Tensor, letters: Sequence[Sequence[int]]) -> list[Alignment]:
    """The likeliest path through the encoder's letters (rows, positions, letters), as CTC defines it (Graves 2006)."""
    scores = log_probabilities.detach().float().cpu().numpy().astype(np.float64)
    num_rows, num_positions, _ = scores.shape
    # A path alternates between nothing and letters, and may skip the nothing between two different letters.
    num_states = 2 * max(map(len, letters)) + 1
    states = np.full((num_rows, num_states), BLANK)
    for row, word in enumerate(letters):
        states[row, 1 : 2 * len(word) : 2] = word
    may_skip = np.zeros((num_rows, num_states), dtype=bool)
    may_skip[:, 2:] = (states[:, 2:] != BLANK) & (states[:, 2:] != states[:, :-2])
    rows = np.arange(num_rows)
    emitted = scores[rows[:, None], :, states].transpose(2, 0, 1)
    best = np.full((num_rows, num_states), _IMPOSSIBLE)
    best[:, :2] = emitted[0, :, :2]
    came_from = np.zeros((num_positions, num_rows, num_states), dtype=np.int8)
    for position in range(1, num_positions):
        choices = np.full((3, num_rows, num_states), _IMPOSSIBLE)
        choices[0] = best
        choices[1, :, 1:] = best[:, :-1]
        choices[2, :, 2:] = np.where(may_skip[:, 2:], best[:, :-2], _IMPOSSIBLE)
        came_from[position] = choices.argmax(axis=0)
        best = choices.max(axis=0) + emitted[position]
    ends = 2 * np.array([len(word) for word in letters])
    before_end = np.maximum(ends - 1, 0)
    state = np.where(best[rows, before_end] > best[rows, ends], before_end, ends)
    final = best[rows, state]
    path = np.zeros((num_positions, num_rows), dtype=np.int64)
    for position in range(num_positions - 1, -1, -1):
        path[position] = state
        state = state - came_from[position, rows, state]
    return [
        Alignment(_places(path[:, row], len(word)), float(final[row]) / max(1, len(word)))
        for row, word in enumerate(letters)
    ]


def _places(path: NDArray[np.int64], num_letters: int) -> Places:
    """From the state at each position to the span of each letter; neighbours meet halfway, if that is not far."""
    places = np.zeros((num_letters, 2))
    for letter in range(num_letters):
        named = np.flatnonzero(path == 2 * letter + 1)
        # Only where sound is shorter than text does a letter have no position: it goes where the one before ends.
        places[letter] = (named[0], named[-1] + 1) if named.size else places[max(0, letter - 1), 1]
    if not num_letters:
        return places
    middles = (places[:-1, 1] + places[1:, 0]) / 2
    starts = np.maximum(places[:, 0] - _REACH_POSITIONS, np.concatenate([[-np.inf], middles]))
    ends = np.minimum(places[:, 1] + _REACH_POSITIONS, np.concatenate([middles, [np.inf]]))
    return np.stack([np.maximum(starts, 0.0), ends], axis=1)


def token_places(spans: Sequence[tuple[int, int]], places: Places) -> Places:
    """Start and end of each token (tokens, 2); a token that says nothing is where its neighbours meet."""
    found = np.zeros((len(spans), 2))
    for number, (first, last) in enumerate(spans):
        if last > first:
            found[number] = places[first, 0], places[last - 1, 1]
        elif len(places):
            # Up to the next letter, or a little after the last one.
            start = places[first - 1, 1] if first else max(0.0, places[0, 0] - _REACH_POSITIONS)
            end = places[first, 0] if first < len(places) else start + _REACH_POSITIONS
            found[number] = start, max(start, end)
    return found


def soft_targets(places: Places, num_positions: int) -> Tensor:
    """Where each token's attention should be: (tokens, positions), even within the token, soft at its edges."""
    centres = torch.arange(num_positions) + 0.5
    spans = torch.from_numpy(places).float()
    outside = torch.maximum(spans[:, :1] - centres, centres - spans[:, 1:]).clamp(min=0.0)
    return torch.softmax(-0.5 * (outside / _EDGE_POSITIONS).square(), dim=-1)
