"""Training of the encoder's codebooks: k-means start, running means, revival of dead entries.

An entry's usage is its share of all vectors relative to the average entry's, so 1 is average, and its sum is its mean
times its usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from training.model.codec.quantizer import EncoderCodebook, EncoderQuantizer, EncoderResidualQuantizer

# An entry with less usage is dead. With 256 entries and a hundred vectors per step, an average entry decays to this
# after 170 steps without any vectors.
_DEAD_USAGE = 0.03

_K_MEANS_ITERATIONS = 15


class Quantized(NamedTuple):
    """Vectors quantized by a sequence of codebooks; all tensors are (codebook, vector, ...)."""

    codes: Tensor
    inputs: Tensor
    """Each codebook's input, the residual of the previous ones."""
    entries: Tensor


def vectors_of(quantizer: EncoderQuantizer, latents: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors (rows, frames, width) that codebook 0 and the others quantize of latents (rows, width, frames)."""
    halves = quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer
    first, rest = (latents if half.input_proj is None else half.input_proj(latents) for half in halves)
    return first.transpose(1, 2), rest.transpose(1, 2)


def codebooks_of(quantizer: EncoderResidualQuantizer) -> list[EncoderCodebook]:
    """The codebooks of one half of the encoder's quantizer, in order."""
    return [module for module in quantizer.modules() if isinstance(module, EncoderCodebook)]


@torch.no_grad()
def quantize(codebooks: Sequence[EncoderCodebook], vectors: Tensor) -> Quantized:
    """Quantize float32 vectors (vectors, width) with each codebook in turn."""
    residual = vectors.detach()
    codes, inputs, entries = [], [], []
    for codebook in codebooks:
        found = codebook.encode(residual)
        entry = codebook.decode(found)
        codes.append(found)
        inputs.append(residual)
        entries.append(entry)
        residual = residual - entry
    return Quantized(torch.stack(codes), torch.stack(inputs), torch.stack(entries))


def variance(vectors: Tensor) -> Tensor:
    """Mean variance of vectors (vectors, width), a scalar without gradient."""
    return vectors.detach().var(dim=0, correction=0).mean()


@torch.no_grad()
def follow(codebooks: Sequence[EncoderCodebook], quantized: Quantized, decay: float) -> None:
    """Move every codebook's running means towards the vectors just assigned to its entries."""
    for codebook, codes, inputs in zip(codebooks, quantized.codes, quantized.inputs, strict=True):
        usage, sums = _assigned(codes, inputs, codebook.cluster_usage.shape[0])
        codebook.cluster_usage.lerp_(usage, 1 - decay)
        codebook.embed_sum.lerp_(sums, 1 - decay)


@torch.no_grad()
def revive(codebook: EncoderCodebook, vectors: Tensor, random: torch.Generator) -> Tensor:
    """Replace each dead entry by a random one of the vectors; returns which entries were dead, bool.

    A revived entry starts with average usage, so it has time to attract vectors before it counts as dead again.
    """
    is_dead = codebook.cluster_usage < _DEAD_USAGE
    # Drawn on the CPU and for every entry, so that the draws do not depend on the device or on which entries are dead.
    drawn = torch.randint(vectors.shape[0], (is_dead.shape[0],), generator=random).to(vectors.device)
    codebook.cluster_usage[:] = torch.where(is_dead, 1.0, codebook.cluster_usage)
    codebook.embed_sum[:] = torch.where(is_dead.unsqueeze(-1), vectors[drawn], codebook.embed_sum)
    return is_dead


@torch.no_grad()
def start(codebooks: Sequence[EncoderCodebook], vectors: Tensor, random: torch.Generator) -> None:
    """Start each codebook with the k-means of the residual that the previous ones leave of vectors (vectors, width)."""
    residual = vectors
    for codebook in codebooks:
        means = k_means(residual, codebook.cluster_usage.shape[0], random)
        usage, sums = _assigned(_nearest(residual, means), residual, means.shape[0])
        # Empty clusters keep their mean, with as little weight as a dead entry, and are revived later.
        is_empty = usage == 0
        usage = torch.where(is_empty, _DEAD_USAGE, usage)
        codebook.cluster_usage[:] = usage
        codebook.embed_sum[:] = torch.where(is_empty.unsqueeze(-1), means * usage.unsqueeze(-1), sums)
        residual = residual - codebook.decode(codebook.encode(residual))


def k_means(vectors: Tensor, num_means: int, random: torch.Generator) -> Tensor:
    """Lloyd's algorithm from random vectors: (means, width). Means that lose all their vectors stay where they are."""
    order = torch.randperm(vectors.shape[0], generator=random).to(vectors.device)
    repeated = order.repeat(-(-num_means // len(order)))
    means = vectors[repeated[:num_means]]
    for _ in range(_K_MEANS_ITERATIONS):
        usage, sums = _assigned(_nearest(vectors, means), vectors, num_means)
        means = torch.where(usage.unsqueeze(-1) > 0, sums / usage.clamp(min=1e-8).unsqueeze(-1), means)
    return means


def _nearest(vectors: Tensor, means: Tensor) -> Tensor:
    return torch.addmm(means.square().sum(dim=-1) / 2, vectors, means.t(), alpha=-1).argmin(dim=-1)


def _assigned(codes: Tensor, vectors: Tensor, num_entries: int) -> tuple[Tensor, Tensor]:
    """Usage (entries,) and sums (entries, width) of one assignment, relative to the average entry's usage."""
    # A matrix product, because the order of scattered additions is not deterministic on a GPU.
    is_assigned = functional.one_hot(codes, num_entries).to(vectors.dtype)
    scale = num_entries / codes.shape[0]
    return is_assigned.sum(dim=0) * scale, is_assigned.t() @ vectors * scale


def perplexity(counts: Tensor) -> float:
    """Perplexity of counts (entries,): the number of equally used entries with the same entropy."""
    share = counts.double() / counts.sum().clamp(min=1)
    return float(torch.special.entr(share).sum().exp())
