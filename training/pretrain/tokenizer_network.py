"""The speech tokenizer as it is trained: a differentiable way from waveform through codes to waveform."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.speech_tokenizer.quantizer import EncoderResidualQuantizer
from training.model.speech_tokenizer.tokenizer import SpeechTokenizer
from training.pretrain import vector_quantizer_training as vq
from training.pretrain.content_target import ContentHead, ContentTarget
from training.pretrain.tokenizer_job import TokenizerJob
from training.pretrain.vector_quantizer_training import Quantized

# Acoustic codebooks a crop keeps at least when it is to do with fewer.
_FEWEST_CODEBOOKS = 3


class Heard(NamedTuple):
    """What became of a batch of crops."""

    waveform: Tensor
    """Decoded (rows, samples)."""
    commitment: Tensor
    content: Tensor
    semantic: Quantized | None
    acoustic: Quantized | None
    """What the codebooks learn from; None before there are any."""


class TokenizerNetwork(nn.Module):
    """The speech tokenizer with what only its training needs."""

    def __init__(self, job: TokenizerJob) -> None:
        super().__init__()
        config = job.size.config()
        self.job = job
        self.tokenizer = SpeechTokenizer(config)
        self.content_head = ContentHead(job.size.codebook_width)
        self.content_target = ContentTarget(config.input_sample_rate)
        self.semantic = vq.codebooks_of(self.tokenizer.encoder.quantizer.semantic_residual_vector_quantizer)
        self.acoustic = vq.codebooks_of(self.tokenizer.encoder.quantizer.acoustic_residual_vector_quantizer)
        self._freeze_unused()
        self._encode: Callable[[Tensor], Tensor] = self.tokenizer.encoder.latents
        self._decode_latents: Callable[[Tensor], Tensor] = self.tokenizer.decoder.forward

    def compile_networks(self) -> None:
        """Compile both networks: fused activations save most of a step on a CPU."""
        self._encode = torch.compile(self._encode, dynamic=False)
        self._decode_latents = torch.compile(self._decode_latents, dynamic=False)

    def _freeze_unused(self) -> None:
        """The format has projections that only one of its two halves uses, and the decoder's copy of the codebooks."""
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

    def forward(self, waveform: Tensor, random: torch.Generator, *, has_codes: bool) -> Heard:
        """Encode, quantize as in training, and decode crops (rows, samples) of whole frames."""
        first, rest = self.vectors(waveform)
        if has_codes:
            return self._through_codes(waveform, first, rest, random)
        noisy_first, noisy_rest = self._with_noise(first, random), self._with_noise(rest, random)
        nothing = first.new_zeros(())
        content = self._content_loss(noisy_first, waveform)
        return Heard(self._decode(noisy_first, noisy_rest), nothing, content, None, None)

    def vectors(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """What the first codebook and what the others quantize, each (rows, frames, width)."""
        quantizer = self.tokenizer.encoder.quantizer
        # What is compiled would be compiled again for calls without gradients, and there are few of those.
        encode = self._encode if torch.is_grad_enabled() else self.tokenizer.encoder.latents
        latents = encode(waveform)
        return (
            _project_in(quantizer.semantic_residual_vector_quantizer, latents),
            _project_in(quantizer.acoustic_residual_vector_quantizer, latents),
        )

    def _through_codes(self, waveform: Tensor, first: Tensor, rest: Tensor, random: torch.Generator) -> Heard:
        semantic = vq.quantize(self.semantic, first.flatten(0, 1))
        acoustic = vq.quantize(self.acoustic, rest.flatten(0, 1))
        kept = self._draw_kept(first.shape[0], random).to(first.device)
        entries = acoustic.entries.unflatten(1, rest.shape[:2])
        acoustic_sum = (entries * kept[:, :, None, None]).sum(dim=0)
        is_quantized = (torch.rand(first.shape[0], generator=random) >= self.job.unquantized_share).to(first.device)
        heard_first = _where_row(is_quantized, semantic.entries[0].view_as(first), first)
        heard_rest = _where_row(is_quantized, acoustic_sum, rest)
        commitment = vq.commitment(first.flatten(0, 1), semantic.entries)
        commitment = commitment + vq.commitment(rest.flatten(0, 1), acoustic.entries)
        # The first codebook answers for the content even in crops that are decoded unquantized.
        content = self._content_loss(vq.pass_gradient(first, semantic.entries[0].view_as(first)), waveform)
        return Heard(self._decode(heard_first, heard_rest), commitment, content, semantic, acoustic)

    def _draw_kept(self, num_rows: int, random: torch.Generator) -> Tensor:
        """Which codebooks each crop is decoded from, float (acoustic codebooks, rows)."""
        num_acoustic = len(self.acoustic)
        is_short = torch.rand(num_rows, generator=random) < self.job.dropout_share
        few = torch.randint(_FEWEST_CODEBOOKS, num_acoustic, (num_rows,), generator=random)
        num_kept = torch.where(is_short, few, num_acoustic)
        return (torch.arange(num_acoustic).unsqueeze(1) < num_kept).float()

    def _with_noise(self, vectors: Tensor, random: torch.Generator) -> Tensor:
        """Noise relative to the vectors' own spread, so that growing does not help against it."""
        noise = torch.randn(vectors.shape, generator=random).to(vectors.device)
        spread = vq.variance(vectors.flatten(0, 1)).sqrt()
        return vectors + self.job.latent_noise * spread * noise

    def _content_loss(self, first: Tensor, waveform: Tensor) -> Tensor:
        return functional.l1_loss(self.content_head(first.transpose(1, 2)), self.content_target(waveform))

    def _decode(self, first: Tensor, rest: Tensor) -> Tensor:
        quantizer = self.tokenizer.decoder.quantizer
        latents = quantizer.rvq_first.output_proj(first.transpose(1, 2))
        latents = latents + quantizer.rvq_rest.output_proj(rest.transpose(1, 2))
        waveform: Tensor = self._decode_latents(latents)
        return waveform


def _project_in(quantizer: EncoderResidualQuantizer, latents: Tensor) -> Tensor:
    projected: Tensor = latents if quantizer.input_proj is None else quantizer.input_proj(latents)
    return projected.transpose(1, 2)


def _where_row(is_quantized: Tensor, quantized: Tensor, vectors: Tensor) -> Tensor:
    return torch.where(is_quantized[:, None, None], vq.pass_gradient(vectors, quantized), vectors)
