# Shape letters: K number of a vector.
"""Optimal transport between two normal distributions: moves every vector as little as it can."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SMALLEST_VARIANCE = 1e-8


def transport(own_KK: NDArray[np.float64], wanted_KK: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix (K, K) that carries deviations from one mean over to those from another (Dowson & Landau 1982).

    Args:
        own_KK: covariance of what is moved.
        wanted_KK: covariance that it shall have.
    """
    root_KK = _root(own_KK)
    undone_KK = np.linalg.inv(root_KK)
    matrix: NDArray[np.float64] = undone_KK @ _root(root_KK @ wanted_KK @ root_KK) @ undone_KK
    return matrix


def _root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric square root of a symmetric matrix."""
    values, vectors = np.linalg.eigh(matrix)
    root: NDArray[np.float64] = (vectors * np.sqrt(np.maximum(values, _SMALLEST_VARIANCE))) @ vectors.T
    return root
