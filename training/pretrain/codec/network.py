"""The speech tokenizer as it is trained: an encoder that imitates the analysis, a decoder that speaks from codes."""

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

# Acoustic codebooks a crop keeps at least when it is to do with fewer.
_MIN_CODEBOOKS = 3
# Of the squared distances, in units of the variance of one direction: entries are some ten such apart.
_TEMPERATURE = 8.0


class Heard(NamedTuple):
    """What became of a batch of crops."""

    waveform: Tensor
    """Decoded from the analysis's codes (rows, samples)."""
    imitation: Tensor | None
    """Mean square distance of the encoder's vectors from what the codes stand for, whose own variance is about 1."""
    first_code: Tensor | None
    """Cross-entropy of the encoder's first codebook, in nats. Like imitation none where the encoder is not trained."""


class TokenizerNetwork(nn.Module):
    """The speech tokenizer with fixed codebooks. Encoder and decoder share nothing but those."""

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
        """Take over the codebooks of the analysis."""
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

    def forward(self, crops: Crops, random: torch.Generator) -> Heard:
        """Encode crops as loud as they are heard, and decode what the analysis made of them."""
        first_entries, rest_entries = self._entries(crops.codes)
        imitation = first_code = None
        if not self.job.decoder_only:
            first, rest = self.vectors(crops.waveform * crops.gains)
            imitation = functional.mse_loss(first, first_entries) + functional.mse_loss(rest, rest_entries.sum(dim=0))
            first_code = self._first_code_loss(first, crops.codes[..., 0])
        kept = self._draw_kept(len(crops.codes), random).to(first_entries.device)
        decoded = self._decode(first_entries, (rest_entries * kept[:, :, None, None]).sum(dim=0))
        return Heard(decoded, imitation, first_code)

    def vectors(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """What the first codebook and what the others quantize, each (rows, frames, width)."""
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

    def _first_code_loss(self, first: Tensor, codes: Tensor) -> Tensor:
        """The nearest entry is what counts in use; distance alone is content with the average of two."""
        quantizer = self.tokenizer.encoder.quantizer.semantic_residual_vector_quantizer
        book = vq.codebooks_of(quantizer)[0]
        table = book.decode(torch.arange(book.cluster_usage.shape[0], device=first.device))
        distances = table.square().sum(dim=-1) - 2 * first @ table.t()
        logits = -distances / vq.variance(table).clamp(min=1e-8) / _TEMPERATURE
        return functional.cross_entropy(logits.flatten(0, 1), codes.flatten())

    def _draw_kept(self, num_rows: int, random: torch.Generator) -> Tensor:
        """Which codebooks each crop is decoded from, float (acoustic codebooks, rows)."""
        num_acoustic = self.tokenizer.config.decoder.num_quantizers - 1
        is_short = torch.rand(num_rows, generator=random) < self.job.dropout_share
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
