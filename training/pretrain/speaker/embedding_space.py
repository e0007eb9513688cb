# Shape letters: N speaker, V verifier's direction, D embedding width.
"""Where among the embeddings that a talker knows a voice belongs, by a verifier that knows people.

A speaker encoder that has heard only engines sends a person's voice to a place where there is none, and the talker
mumbles. The verifier has heard thousands of people. Regression from its directions to the embeddings of all training
speakers tells where, between them, a voice lies that is like some of them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


class EmbeddingSpace:
    """A linear map from a verifier's directions to a talker's speaker embeddings."""

    def __init__(self, mean_D: Tensor, mean_V: Tensor, weights_VD: Tensor) -> None:
        self.mean_D, self._mean_V, self._weights_VD = mean_D, mean_V, weights_VD

    @classmethod
    def fit(
        cls, directions_NV: Tensor, embeddings_ND: Tensor, *, ridge: float, min_gain: float = 0.0
    ) -> EmbeddingSpace:
        """The map for these speakers by ridge regression; a larger `ridge` keeps unlike voices nearer to the mean.

        In most directions of the verifier, speakers made of a few voices hardly differ, and people do. By regression
        alone such differences would be lost, so none is multiplied by less than `min_gain`: the talker does not know
        what they mean yet, but can learn it.
        """
        mean_V, mean_D = directions_NV.mean(0), embeddings_ND.mean(0)
        x_NV = (directions_NV - mean_V).double()
        gram_VV = x_NV.T @ x_NV + ridge * torch.eye(x_NV.shape[1], dtype=torch.float64)
        weights_VD = torch.linalg.solve(gram_VV, x_NV.T @ (embeddings_ND - mean_D).double())
        if min_gain:
            verifier_VK, gains_K, talker_KD = torch.linalg.svd(weights_VD, full_matrices=False)
            weights_VD = (verifier_VK * gains_K.clamp(min=min_gain)) @ talker_KD
        return cls(mean_D, mean_V, weights_VD.float().contiguous())

    def place(self, directions: Tensor) -> Tensor:
        """Embeddings (..., D) of voices in these directions (..., V)."""
        return self.mean_D + (directions.to(self.mean_D.device) - self._mean_V) @ self._weights_VD

    def missed(self, embeddings_BD: Tensor, wanted_BD: Tensor) -> Tensor:
        """How far embeddings are from those wanted, relative to the mean of all speakers: 0 to 1 or more; squared.

        Over the whole batch at once: a voice near that mean would weigh too much by itself.
        """
        return (embeddings_BD - wanted_BD).square().sum() / (wanted_BD - self.mean_D).square().sum()

    def save(self, path: Path) -> None:
        """Write the map to a file."""
        save_file({"mean": self.mean_D, "verifier_mean": self._mean_V, "weights": self._weights_VD}, path)

    @classmethod
    def load(cls, path: Path, device: torch.device | str = "cpu") -> EmbeddingSpace:
        """Read what `save` wrote."""
        found = load_file(path, device=str(device))
        return cls(found["mean"], found["verifier_mean"], found["weights"])
