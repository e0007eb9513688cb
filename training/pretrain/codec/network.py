"""The speech tokenizer in training: an encoder that imitates the analysis, a decoder that speaks from codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.speech_tokenizer.quantizer import EncoderResidualQuantizer
from training.model.speech_tokenizer.tokenizer import SpeechTokenizer
from training.pretrain.codec import vector_quantizer_training as vq
from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.crops import Crops
from training.pretrain.codec.job import TokenizerJob

# Minimum of acoustic codebooks for crops that use only the first few.
_MIN_CODEBOOKS = 3
# Of the squared distances, in units of the variance of one direction; entries are about ten such units apart.
_TEMPERATURE = 8.0


class NetworkOutput(NamedTuple):
    """The network's output for a batch of crops; both losses are None if the encoder is not trained."""

    waveform: Tensor
    """Decoded from the analysis's codes (rows, samples)."""
    imitation: Tensor | None
    """Mean square distance of the encoder's vectors from the codes' entries, whose own variance is about 1."""
    codebook_0: Tensor | None
    """Cross-entropy of the encoder's codebook 0, in nats."""


class TokenizerNetwork(nn.Module):
    """The speech tokenizer with fixed codebooks, which are all that encoder and decoder share."""

    def __init__(self, job: TokenizerJob) -> None:
        super().__init__()
        self.job = job
        self.tokenizer = SpeechTokenizer(job.size.config())
        self._freeze_unused()
        if job.decoder_only:
            self.tokenizer.encoder.requires_grad_(False)
        self._encode: Callable[[Tensor], Tensor] = self.tokenizer.encoder.latents
        self._decode_latents: Callable[[Tensor], Tensor] = self.tokenizer.decoder.forward

    @torch.no_grad()
    def adopt(self, space: CodeSpace) -> None:
        """Copy the codebooks of the analysis."""
        quantizer = self.tokenizer.encoder.quantizer
        own = [
            *vq.codebooks_of(quantizer.semantic_residual_vector_quantizer),
            *vq.codebooks_of(quantizer.acoustic_residual_vector_quantizer),
        ]
        for book, found in zip(own, [*space.semantic, *space.acoustic], strict=True):
            book.embed_sum.copy_(found.embed_sum)
            book.cluster_usage.copy_(found.cluster_usage)

    def compile_networks(self) -> None:
        """Compile both networks: fused activations save most of a step on a CPU."""
        self._encode = torch.compile(self._encode, dynamic=False)
        self._decode_latents = torch.compile(self._decode_latents, dynamic=False)

    def _freeze_unused(self) -> None:
        """Freeze projections that only the other half uses, and the decoder's copy of the codebooks."""
        encoder, decoder = self.tokenizer.encoder.quantizer, self.tokenizer.decoder.quantizer
        for unused in (
            encoder.semantic_residual_vector_quantizer.output_proj,
            encoder.acoustic_residual_vector_quantizer.output_proj,
            decoder.rvq_first.input_proj,
            decoder.rvq_rest.input_proj,
            decoder.rvq_first.vq,
            decoder.rvq_rest.vq,
        ):
            if unused is not None:
                unused.requires_grad_(False)

    def forward(self, crops: Crops, random: torch.Generator) -> NetworkOutput:
        """Encode crops with their gains, and decode their codes from the analysis."""
        first_entries, rest_entries = self._entries(crops.codes)
        imitation = codebook_0 = None
        if not self.job.decoder_only:
            first, rest = self.vectors(crops.waveform * crops.gains)
            imitation = functional.mse_loss(first, first_entries) + functional.mse_loss(rest, rest_entries.sum(dim=0))
            codebook_0 = self._codebook_0_loss(first, crops.codes[..., 0])
        kept = self._draw_kept(len(crops.codes), random).to(first_entries.device)
        decoded = self._decode(first_entries, (rest_entries * kept[:, :, None, None]).sum(dim=0))
        return NetworkOutput(decoded, imitation, codebook_0)

    def vectors(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors that codebook 0 and the others quantize, each (rows, frames, width)."""
        quantizer = self.tokenizer.encoder.quantizer
        latents = self._encode(waveform)
        return (
            _project_in(quantizer.semantic_residual_vector_quantizer, latents),
            _project_in(quantizer.acoustic_residual_vector_quantizer, latents),
        )

    @torch.no_grad()
    def _entries(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        quantizer = self.tokenizer.encoder.quantizer
        semantic = vq.codebooks_of(quantizer.semantic_residual_vector_quantizer)
        acoustic = vq.codebooks_of(quantizer.acoustic_residual_vector_quantizer)
        rest = [book.decode(codes[..., number + 1]) for number, book in enumerate(acoustic)]
        return semantic[0].decode(codes[..., 0]), torch.stack(rest)

    def _codebook_0_loss(self, first: Tensor, codes: Tensor) -> Tensor:
        """Cross-entropy of the nearest entry, since distance alone would accept the average of two entries."""
        quantizer = self.tokenizer.encoder.quantizer.semantic_residual_vector_quantizer
        book = vq.codebooks_of(quantizer)[0]
        table = book.decode(torch.arange(book.cluster_usage.shape[0], device=first.device))
        distances = table.square().sum(dim=-1) - 2 * first @ table.t()
        logits = -distances / vq.variance(table).clamp(min=1e-8) / _TEMPERATURE
        return functional.cross_entropy(logits.flatten(0, 1), codes.flatten())

    def _draw_kept(self, num_rows: int, random: torch.Generator) -> Tensor:
        """Mask of the codebooks that each crop is decoded from, float (acoustic codebooks, rows)."""
        num_acoustic = self.tokenizer.config.decoder.num_quantizers - 1
        is_short = torch.rand(num_rows, generator=random) < self.job.dropout_ratio
        few = torch.randint(_MIN_CODEBOOKS, num_acoustic, (num_rows,), generator=random)
        num_kept = torch.where(is_short, few, num_acoustic)
        return (torch.arange(num_acoustic).unsqueeze(1) < num_kept).float()

    def _decode(self, first: Tensor, rest: Tensor) -> Tensor:
        quantizer = self.tokenizer.decoder.quantizer
        latents = quantizer.rvq_first.output_proj(first.transpose(1, 2))
        latents = latents + quantizer.rvq_rest.output_proj(rest.transpose(1, 2))
        waveform: Tensor = self._decode_latents(latents)
        return waveform


def _project_in(quantizer: EncoderResidualQuantizer, latents: Tensor) -> Tensor:
    projected: Tensor = latents if quantizer.input_proj is None else quantizer.input_proj(latents)
    return projected.transpose(1, 2)
