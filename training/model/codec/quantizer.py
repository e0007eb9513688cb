# Shape letters: B batch row, F codec frame, Q codebook, D width, N any number of vectors, V codebook entry.
"""Residual vector quantization: the encoder's half finds codes, both halves turn codes into vectors.

The two halves of the public checkpoint use different names, and the encoder stores its codebooks as buffers, the
decoder as parameters. Both store running sums: an entry is the sum of the vectors assigned to it, divided by their
number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.model.config import CodecDecoderConfig, CodecEncoderConfig

# Entries that were never used have usage 0; the public codebooks were trained with this floor.
_MIN_USAGE = 1e-5


def _look_up(codes: Tensor, sums_VD: Tensor, usage_V: Tensor) -> Tensor:
    """The entries at `codes`. Divides after the look-up, because a chunk needs few of the entries."""
    usage = F.embedding(codes, usage_V.clamp(min=_MIN_USAGE).unsqueeze(-1))
    return F.embedding(codes, sums_VD) / usage


def _project(quantized_BFD: Tensor, projection: nn.Conv1d | None) -> Tensor:
    """Latents (B, D, F) in the projection's dtype; the codebooks may be kept in a wider one."""
    if projection is None:
        return quantized_BFD.transpose(1, 2)
    weight = projection.weight.squeeze(-1)
    return F.linear(quantized_BFD.to(weight.dtype), weight).transpose(1, 2)


class EntryTable:
    """The entries of a codebook, ready to be searched again and again."""

    def __init__(self, table_VD: Tensor) -> None:
        self.entries_VD = table_VD
        # |x - e|^2 without |x|^2, which is the same for every entry and would only cost precision.
        self._half_norms_V = table_VD.square().sum(dim=-1) / 2

    def encode(self, vectors_ND: Tensor) -> Tensor:
        """Index of the nearest entry of each vector, int64 (N,); distances are taken in float32."""
        return torch.addmm(self._half_norms_V, vectors_ND.float(), self.entries_VD.t(), alpha=-1).argmin(dim=-1)


class CodeVectors:
    """Codes as points in the space of their codebooks' entries, and back: a frame is the sum of its entries."""

    def __init__(self, tables: Sequence[EntryTable]) -> None:
        self._tables = tables

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self._tables[0].entries_VD.shape[1]

    @cached_property
    def _joined(self) -> tuple[Tensor, Tensor]:
        """The entries of all tables, and where each table's begin."""
        entries = [table.entries_VD for table in self._tables]
        starts = list(itertools.accumulate((len(one) for one in entries[:-1]), initial=0))
        return torch.cat(entries), torch.tensor(starts, device=entries[0].device)

    def vectors(self, codes_NQ: Tensor) -> Tensor:
        """(N, D) for codes of as many codebooks as there are tables."""
        entries_ED, starts_Q = self._joined
        return F.embedding(codes_NQ + starts_Q, entries_ED).sum(dim=-2)

    def codes(self, vectors_ND: Tensor) -> Tensor:
        """(N, Q): each codebook's entry that is nearest to what the previous ones have left of a vector."""
        codes, residual_ND = [], vectors_ND.float()
        for table in self._tables:
            codes.append(table.encode(residual_ND))
            residual_ND = residual_ND - F.embedding(codes[-1], table.entries_VD)
        return torch.stack(codes, dim=-1)


class EncoderCodebook(nn.Module):
    """Codebook of the encoder; its statistics are buffers because training updates them by averaging."""

    initialized: Tensor
    cluster_usage: Tensor
    embed_sum: Tensor

    def __init__(self, codebook_size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("initialized", torch.ones(1))
        self.register_buffer("cluster_usage", torch.ones(codebook_size))
        self.register_buffer("embed_sum", torch.zeros(codebook_size, width))

    def table(self) -> Tensor:
        """All entries (V, D) in float32."""
        return self.embed_sum.float() / self.cluster_usage.float().clamp(min=_MIN_USAGE).unsqueeze(-1)

    def encode(self, vectors_ND: Tensor) -> Tensor:
        """Index of the nearest entry of each vector, int64 (N,); distances are taken in float32."""
        return EntryTable(self.table()).encode(vectors_ND)

    def decode(self, codes: Tensor) -> Tensor:
        """Entries at `codes`: (...) becomes (..., D)."""
        return _look_up(codes, self.embed_sum, self.cluster_usage)


class _EncoderLayer(nn.Module):
    """Holds one codebook under the name the checkpoint gives it."""

    def __init__(self, codebook_size: int, width: int) -> None:
        super().__init__()
        self.codebook = EncoderCodebook(codebook_size, width)


class EncoderResidualQuantizer(nn.Module):
    """A sequence of codebooks, each of which quantizes the residual of the previous ones."""

    def __init__(self, config: CodecEncoderConfig, num_quantizers: int) -> None:
        super().__init__()
        width = config.vector_quantization_hidden_dimension
        self.layers = nn.ModuleList(
            _EncoderLayer(config.codebook_size, config.codebook_dim) for _ in range(num_quantizers)
        )
        self.input_proj: nn.Conv1d | None = None
        self.output_proj: nn.Conv1d | None = None
        if width != config.hidden_size:
            self.input_proj = nn.Conv1d(config.hidden_size, width, 1, bias=False)
            self.output_proj = nn.Conv1d(width, config.hidden_size, 1, bias=False)

    def _codebooks(self) -> list[EncoderCodebook]:
        return [layer.codebook for layer in self.layers if isinstance(layer, _EncoderLayer)]

    def encode(self, latents_BDF: Tensor, num_quantizers: int) -> Tensor:
        """Codes of the first `num_quantizers` codebooks, int64 (B, F, Q)."""
        projected_BDF = latents_BDF if self.input_proj is None else self.input_proj(latents_BDF)
        vectors_ND = projected_BDF.transpose(1, 2).flatten(0, 1)
        codes_NQ = self.code_vectors(num_quantizers).codes(vectors_ND)
        return codes_NQ.view(latents_BDF.shape[0], latents_BDF.shape[2], num_quantizers)

    def code_vectors(self, num_quantizers: int) -> CodeVectors:
        """Between codes of the first codebooks and the vectors that they quantize."""
        return CodeVectors([EntryTable(codebook.table()) for codebook in self._codebooks()[:num_quantizers]])

    def decode(self, codes_BFQ: Tensor) -> Tensor:
        """Quantized latents (B, D, F) of the first Q codebooks."""
        pairs = zip(codes_BFQ.unbind(dim=-1), self._codebooks()[: codes_BFQ.shape[-1]], strict=True)
        quantized_BFD = torch.stack([book.decode(codes_BF) for codes_BF, book in pairs]).sum(dim=0)
        return _project(quantized_BFD, self.output_proj)


class EncoderQuantizer(nn.Module):
    """The semantic codebook and the acoustic ones, which quantize the same latents independently."""

    def __init__(self, config: CodecEncoderConfig) -> None:
        super().__init__()
        self.num_semantic = config.num_semantic_quantizers
        self.num_quantizers = config.num_quantizers
        self.semantic_residual_vector_quantizer = EncoderResidualQuantizer(config, self.num_semantic)
        self.acoustic_residual_vector_quantizer = EncoderResidualQuantizer(
            config, config.num_quantizers - self.num_semantic
        )

    def encode(self, latents_BDF: Tensor, num_quantizers: int) -> Tensor:
        """Codes of the first `num_quantizers` codebooks, semantic first, int64 (B, F, Q).

        Raises:
            ValueError: more codebooks than there are, or fewer than the semantic ones.
        """
        if not self.num_semantic <= num_quantizers <= self.num_quantizers:
            raise ValueError(f"{num_quantizers} codebooks requested, not {self.num_semantic} to {self.num_quantizers}.")
        semantic_BFQ = self.semantic_residual_vector_quantizer.encode(latents_BDF, self.num_semantic)
        if num_quantizers == self.num_semantic:
            return semantic_BFQ
        acoustic_BFQ = self.acoustic_residual_vector_quantizer.encode(latents_BDF, num_quantizers - self.num_semantic)
        return torch.cat((semantic_BFQ, acoustic_BFQ), dim=-1)

    def decode(self, codes_BFQ: Tensor) -> Tensor:
        """Quantized latents (B, D, F), as the encoder's own network would have them."""
        semantic_BFQ, acoustic_BFQ = codes_BFQ[..., : self.num_semantic], codes_BFQ[..., self.num_semantic :]
        quantized_BDF = self.semantic_residual_vector_quantizer.decode(semantic_BFQ)
        if acoustic_BFQ.shape[-1] > 0:
            quantized_BDF = quantized_BDF + self.acoustic_residual_vector_quantizer.decode(acoustic_BFQ)
        return quantized_BDF


class DecoderCodebook(nn.Module):
    """Codebook of the decoder."""

    def __init__(self, codebook_size: int, width: int) -> None:
        super().__init__()
        self.cluster_usage = nn.Parameter(torch.ones(codebook_size))
        self.embedding_sum = nn.Parameter(torch.zeros(codebook_size, width))

    def decode(self, codes: Tensor) -> Tensor:
        """Entries at `codes`: (...) becomes (..., D)."""
        return _look_up(codes, self.embedding_sum, self.cluster_usage)


class _DecoderLayer(nn.Module):
    """Holds one codebook under the name the checkpoint gives it."""

    def __init__(self, codebook_size: int, width: int) -> None:
        super().__init__()
        self._codebook = DecoderCodebook(codebook_size, width)

    def decode(self, codes: Tensor) -> Tensor:
        return self._codebook.decode(codes)


class _DecoderLayers(nn.Module):
    """Holds a row of codebooks under the name the checkpoint gives it."""

    def __init__(self, codebook_size: int, width: int, num_quantizers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_DecoderLayer(codebook_size, width) for _ in range(num_quantizers))

    def decode(self, codes_BFQ: Tensor) -> Tensor:
        """Codes (B, F, Q) to the sum of their entries (B, F, D)."""
        layers = [layer for layer in self.layers if isinstance(layer, _DecoderLayer)]
        pairs = zip(codes_BFQ.unbind(dim=-1), layers, strict=True)
        return torch.stack([layer.decode(codes_BF) for codes_BF, layer in pairs]).sum(dim=0)


class DecoderResidualQuantizer(nn.Module):
    """Codebooks whose entries are summed; `input_proj` is used only in training."""

    def __init__(self, config: CodecDecoderConfig, num_quantizers: int) -> None:
        super().__init__()
        width = config.codebook_dim // 2
        self.input_proj = nn.Conv1d(config.codebook_dim, width, 1, bias=False)
        self.output_proj = nn.Conv1d(width, config.codebook_dim, 1, bias=False)
        self.vq = _DecoderLayers(config.codebook_size, width, num_quantizers)

    def decode(self, codes_BFQ: Tensor) -> Tensor:
        """Latents (B, D, F)."""
        return _project(self.vq.decode(codes_BFQ), self.output_proj)


class DecoderQuantizer(nn.Module):
    """Codes to the decoder's latents: the semantic codebook and the acoustic ones, projected separately."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.rvq_first = DecoderResidualQuantizer(config, 1)
        self.rvq_rest = DecoderResidualQuantizer(config, config.num_quantizers - 1)

    def decode(self, codes_BFQ: Tensor) -> Tensor:
        """Latents (B, D, F) of all Q codebooks, D being the decoder's codebook_dim."""
        latents_BDF = self.rvq_first.decode(codes_BFQ[..., :1])
        if codes_BFQ.shape[-1] > 1:
            latents_BDF = latents_BDF + self.rvq_rest.decode(codes_BFQ[..., 1:])
        return latents_BDF
