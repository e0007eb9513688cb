"""The codebooks, found by analysis before any network is trained.

Codebooks that are trained with an encoder move until it is finished, and the talker would have to wait for them. These
are found in minutes: principal components of measured features, k-means for the start, then running means with revival
of dead entries. After that the encoder (which imitates the analysis), the decoder and the talker can all be trained at
the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training.model.codec.quantizer import EncoderCodebook, EncoderQuantizer
from training.pretrain.codec import vector_quantizer_training as vq
from training.pretrain.codec.frame_features import CONTENT_WIDTH, SOUND_WIDTH, Features
from training.pretrain.errors import PretrainError

_DECAY = 0.98
_FRAMES_PER_BATCH = 4096
_NUM_EPOCHS = 2
_MEANS_SAMPLE_FRAMES = 60_000
_FRAMES_PER_SUM = 65_536  # in double precision at once
# Of speech, 100 iterations keep all but a millionth of the variance that the best directions would keep.
_DIRECTION_ITERATIONS = 100
_RIDGE = 1e-12
_NUM_ROTATIONS = 200
# Enough for singular values of a millionth of the largest to become 1.
_POLAR_ITERATIONS = 45


class Components(nn.Module):
    """A linear map to the directions in which features differ most; scales are kept."""

    mean: Tensor
    basis: Tensor

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("basis", torch.zeros(features, width))
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Find the directions in float32 (frames, features), however few of them the features really have.

        Raises:
            PretrainError: there are no frames, or some of their numbers are not finite.
        """
        if not len(features) or not features.isfinite().all():
            raise PretrainError(
                "The codebooks cannot be found: the corpus has no frames, or features that are not finite. "
                "Make the corpus again."
            )
        mean, covariance = _moments(features)
        num_found = min(self.basis.shape)
        directions = _principal_directions(covariance, num_found)
        self.mean.copy_(mean)
        self.basis.zero_()
        self.basis[:, :num_found] = directions
        variance = (directions * (covariance @ directions)).sum()
        # What float32 leaves of numbers of this size says nothing about the features.
        rounding = torch.finfo(torch.float32).eps * features.abs().max().double()
        # One number for all directions: they come out of the encoder's projection at a size it starts near.
        scale = (self.basis.shape[1] / variance).sqrt() if variance > rounding**2 else torch.ones(())
        self.get_buffer("scale").copy_(scale)

    @torch.no_grad()
    def recover(self, features: Tensor, vectors: Tensor) -> None:
        """Find the directions that vectors (frames, width) imitate, an encoder's for these features.

        These are the orthonormal directions, with one scale, whose projections are nearest to the vectors. Each
        iteration comes nearer (a Procrustes problem, with a bound on the quadratic part).

        Raises:
            PretrainError: the features cannot be fitted, or the vectors have nothing to do with them.
        """
        self.fit(features)
        mean, covariance = _moments(features)
        vector_mean = vectors.mean(dim=0, dtype=torch.float64)
        cross = (features.double() - mean).t() @ (vectors.double() - vector_mean) / max(len(features) - 1, 1)
        basis = self.basis.double()
        # The largest variance, with a margin, since its direction is found by iteration.
        bound = 1.01 * basis[:, 0] @ covariance @ basis[:, 0]
        basis = basis @ _nearest_orthonormal(basis.t() @ cross)
        for _ in range(_NUM_ROTATIONS):
            scale = (basis * cross).sum() / (basis * (covariance @ basis)).sum()
            if not scale > 0 or scale.isinf():
                raise PretrainError(
                    "The analysis behind the codes cannot be found: the encoder's vectors do not follow the speech."
                )
            basis = _nearest_orthonormal(cross / scale + bound * basis - covariance @ basis)
        # Imitations are smaller than what they imitate, so the scale is that of a fit.
        scale = (basis * (covariance @ basis)).sum(dim=0).mean().rsqrt()
        self.basis.copy_(basis)
        self.get_buffer("scale").copy_(scale)
        self.mean.copy_(mean - vector_mean / scale @ basis.t())

    def forward(self, features: Tensor) -> Tensor:
        """(frames, features) to (frames, width)."""
        out: Tensor = (features - self.mean) @ self.basis * self.get_buffer("scale")
        return out


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (features,) and covariance (features, features) of float32 (frames, features), both float64."""
    mean = features.mean(dim=0, dtype=torch.float64)
    total = mean.new_zeros(len(mean), len(mean))
    for part in features.split(_FRAMES_PER_SUM):
        centred = part.double() - mean
        total += centred.t() @ centred
    return mean, total / max(len(features) - 1, 1)


def _principal_directions(covariance: Tensor, num_directions: int) -> Tensor:
    """Orthonormal columns (features, directions) that keep the most variance, the most first, by orthogonal iteration.

    LAPACK's eigenvalue routines iterate until they are content, and on some processors give up on covariances of a
    rank far below their size. A QR decomposition is done after a fixed number of steps, whatever it is given.
    """
    # Without a ridge, rounding would decide about directions in which nothing differs.
    ridge = _RIDGE * covariance.diagonal().mean()
    ridged = covariance + ridge * torch.eye(len(covariance), dtype=torch.float64, device=covariance.device)
    random = torch.Generator().manual_seed(0)
    start = torch.randn(len(covariance), num_directions, dtype=torch.float64, generator=random)
    directions: Tensor = torch.linalg.qr(start.to(covariance)).Q
    for _ in range(_DIRECTION_ITERATIONS):
        directions = torch.linalg.qr(ridged @ directions).Q
    return directions


def _nearest_orthonormal(matrix: Tensor) -> Tensor:
    """The nearest float64 matrix with orthonormal columns (or rows, if those are fewer), as far as its rank goes.

    Newton-Schulz iterations rather than a singular value decomposition, which may give up as eigenvalue routines do.
    """
    found: Tensor = matrix / matrix.norm().clamp(min=torch.finfo(torch.float64).tiny)
    for _ in range(_POLAR_ITERATIONS):
        found = 1.5 * found - 0.5 * found @ (found.t() @ found)
    return found


class CodeSpace(nn.Module):
    """Features to codes: one codebook for the content, residual codebooks for the sound."""

    def __init__(self, num_codebooks: int, codebook_size: int, width: int) -> None:
        super().__init__()
        self.content = Components(CONTENT_WIDTH, width)
        self.sound = Components(SOUND_WIDTH, width)
        self.codebooks = nn.ModuleList(EncoderCodebook(codebook_size, width) for _ in range(num_codebooks))

    @property
    def semantic(self) -> list[EncoderCodebook]:
        """The codebook of the content, as a list."""
        return self._books()[:1]

    @property
    def acoustic(self) -> list[EncoderCodebook]:
        """The codebooks of the sound."""
        return self._books()[1:]

    def _books(self) -> list[EncoderCodebook]:
        return [book for book in self.codebooks if isinstance(book, EncoderCodebook)]

    @torch.no_grad()
    def encode(self, features: Features) -> Tensor:
        """Codes (frames, codebooks) of one utterance, int64."""
        content = vq.quantize(self.semantic, self.content(features.content)).codes
        sound = vq.quantize(self.acoustic, self.sound(features.sound)).codes
        return torch.cat((content, sound)).t()

    @classmethod
    def fit(cls, features: Features, *, num_codebooks: int, codebook_size: int, width: int, seed: int) -> Self:
        """Fit components and codebooks to the concatenated features of many utterances."""
        space = cls(num_codebooks, codebook_size, width).to(features.sound.device)
        random = torch.Generator().manual_seed(seed)
        for part, books, values in (
            (space.content, space.semantic, features.content),
            (space.sound, space.acoustic, features.sound),
        ):
            part.fit(values)
            vectors = part(values)
            order = torch.randperm(len(vectors), generator=random)
            vq.start(books, vectors[order[:_MEANS_SAMPLE_FRAMES]], random)
            _refine(books, vectors, random)
        return space

    @classmethod
    def recover(cls, content: tuple[Tensor, Tensor], sound: tuple[Tensor, Tensor], quantizer: EncoderQuantizer) -> Self:
        """The space of a tokenizer's codebooks, from pairs of features and its encoder's vectors."""
        halves = quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer
        books = [book for half in halves for book in vq.codebooks_of(half)]
        space = cls(len(books), *books[0].embed_sum.shape)
        space.content.recover(*content)
        space.sound.recover(*sound)
        for own, book in zip(space._books(), books, strict=True):
            own.embed_sum.copy_(book.embed_sum)
            own.cluster_usage.copy_(book.cluster_usage)
        return space

    def save(self, path: Path) -> None:
        """Write to one safetensors file, atomically."""
        temporary = path.with_suffix(".new")
        save_file({name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}, temporary)
        temporary.replace(path)

    def load(self, path: Path) -> None:
        """Read a file that `save` wrote for the same sizes."""
        self.load_state_dict(load_file(path))


def _refine(books: Sequence[EncoderCodebook], vectors: Tensor, random: torch.Generator) -> None:
    """Running means over shuffled batches, with revival of unused entries."""
    for _ in range(_NUM_EPOCHS):
        for batch in torch.randperm(len(vectors), generator=random).split(_FRAMES_PER_BATCH):
            quantized = vq.quantize(books, vectors[batch])
            vq.follow(books, quantized, _DECAY)
            for pair in zip(books, quantized.inputs, strict=True):
                vq.revive(*pair, random)
