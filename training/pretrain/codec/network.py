"""The speech tokenizer in training: an encoder that imitates the analysis, a decoder that speaks from codes.

With `joint_from`, from then on the decoder is given the encoder's codes. Gradients pass straight through the codebooks,
so that both learn from the decoded speech.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.codec.quantizer import EncoderCodebook
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain.codec import filter_bank
from training.pretrain.codec import vector_quantizer_training as vq
from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.crops import Crops
from training.pretrain.codec.job import TokenizerJob

# Minimum of acoustic codebooks for crops that use only the first few.
_MIN_CODEBOOKS = 3
# Of the squared distances, in units of the variance of one direction; entries are about ten such units apart.
_TEMPERATURE = 8.0
# Of the running means of codebooks that learn, per step.
_DECAY = 0.99


class NetworkOutput(NamedTuple):
    """The network's output for a batch of crops; both losses are None if the encoder is not trained."""

    waveform: Tensor | None
    """Decoded from the analysis's codes or the encoder's (rows, samples); None if the decoder is not trained."""
    imitation: Tensor | None
    """Mean square distance of the encoder's vectors from the codes' entries, whose own variance is about 1."""
    codebook_0: Tensor | None
    """Cross-entropy of the encoder's codebook 0, in nats."""
    commitment: Tensor | None = None
    """In joint training: mean square distance of the encoder's acoustic vectors from their entries."""
    quantized: vq.Quantized | None = None
    """In joint training: the acoustic vectors, quantized."""


class TokenizerNetwork(nn.Module):
    """The speech tokenizer, of which encoder and decoder share nothing but the codebooks."""

    def __init__(self, job: TokenizerJob) -> None:
        super().__init__()
        self.job = job
        self.tokenizer = SpeechTokenizer(job.size.config())
        self._freeze_unused()
        self._begin_refinements()
        if job.decoder_only:
            self.tokenizer.encoder.requires_grad_(False)
        if job.size.filter_bank:
            for layer in filter_bank.frozen_layers(self.tokenizer.encoder):
                layer.requires_grad_(False)
        if job.encoder_only:
            self.tokenizer.decoder.requires_grad_(False)
        self._encode: Callable[[Tensor], Tensor] = self.tokenizer.encoder.latents
        self._decode_latents: Callable[[Tensor], Tensor] = self.tokenizer.decoder.forward

    @torch.no_grad()
    def adopt(self, space: CodeSpace) -> None:
        """Copy the codebooks of the analysis."""
        for book, found in zip([*self._semantic, *self._acoustic], [*space.semantic, *space.acoustic], strict=True):
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

    @torch.no_grad()
    def _begin_refinements(self) -> None:
        """Stages that keep the rate start as the identity."""
        decoder = self.tokenizer.decoder
        for stage, rate in zip(decoder.upsample, self.tokenizer.config.decoder.upsampling_ratios, strict=True):
            assert isinstance(stage, nn.ModuleList)
            if rate == 1:
                convolution = stage[0].get_submodule("conv")
                convolution.get_parameter("weight").copy_(torch.eye(decoder.pre_conv.conv.out_channels).unsqueeze(-1))
                convolution.get_parameter("bias").zero_()

    def forward(self, crops: Crops, random: torch.Generator, *, joint: bool = False) -> NetworkOutput:
        """Encode crops with their gains, and decode their codes from the analysis or, if `joint`, from the encoder."""
        first_entries, rest_entries = self._entries(crops.codes)
        kept = self._draw_kept(len(crops.codes), random).to(first_entries.device)
        rest_sum = (rest_entries * kept[:, :, None, None]).sum(dim=0)
        if self.job.decoder_only:
            if joint:
                first_entries, rest_sum = self._partly_encoded(crops, kept, first_entries, rest_sum, random)
            return NetworkOutput(self._decode(first_entries, rest_sum), None, None)
        first, rest = (vectors.float() for vectors in self.vectors(crops.waveform * crops.gains))
        codebook_0 = self._codebook_0_loss(first, crops.codes[..., 0])
        first_imitation = functional.mse_loss(first, first_entries)
        rest_imitation = (rest - rest_entries.sum(dim=0)).square().mean(dim=(1, 2))
        if not joint:
            decoded = None if self.job.encoder_only else self._decode(first_entries, rest_sum)
            return NetworkOutput(decoded, first_imitation + rest_imitation.mean(), codebook_0)
        is_encoded = (torch.rand(len(kept[0]), generator=random) >= self.job.analysed_share).to(rest.device)
        is_encoded = is_encoded | ~crops.is_analysed
        quantized = vq.quantize(self._acoustic, rest.flatten(0, 1))
        entries = quantized.entries.unflatten(1, rest.shape[:2])
        commitment = (rest - entries.sum(dim=0)).square().mean()
        # Straight-through estimator: the values of the entries with the gradient of the vectors.
        written = rest + ((entries * kept[:, :, None, None]).sum(dim=0) - rest).detach()
        # Codebook 0 stands for the content alone, so its vectors get no gradient from the decoded speech.
        first_written = self._semantic[0].decode(self._semantic[0].encode(first.flatten(0, 1))).view_as(first)
        row = is_encoded[:, None, None]
        decoded = self._decode(torch.where(row, first_written, first_entries), torch.where(row, written, rest_sum))
        weight = 0.0 if self.job.is_freely_encoded else self.job.heard_imitation_weight
        imitation = first_imitation + weight * (rest_imitation * crops.is_analysed).mean()
        return NetworkOutput(decoded, imitation, codebook_0, commitment, quantized)

    @torch.no_grad()
    def _partly_encoded(
        self, crops: Crops, kept: Tensor, first_entries: Tensor, rest_sum: Tensor, random: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The analysis's vectors (crops, frames, width), with those of the encoder's codes in a share of the crops."""
        row = torch.rand(len(rest_sum), generator=random) >= self.job.analysed_share
        row = row.to(rest_sum.device)
        if not row.any():
            return first_entries, rest_sum
        first, rest = (vectors.float() for vectors in self.vectors((crops.waveform * crops.gains)[row]))
        entries = vq.quantize(self._acoustic, rest.flatten(0, 1)).entries.unflatten(1, rest.shape[:2])
        first_entries, rest_sum = first_entries.clone(), rest_sum.clone()
        first_entries[row] = self._semantic[0].decode(self._semantic[0].encode(first.flatten(0, 1))).view_as(first)
        rest_sum[row] = (entries * kept[:, row, None, None]).sum(dim=0)
        return first_entries, rest_sum

    @torch.no_grad()
    def follow(self, quantized: vq.Quantized, random: torch.Generator) -> None:
        """Update the acoustic codebooks by their inputs, and revive dead entries."""
        vq.follow(self._acoustic, quantized, _DECAY)
        for pair in zip(self._acoustic, quantized.inputs, strict=True):
            vq.revive(*pair, random)

    @property
    def _semantic(self) -> list[EncoderCodebook]:
        return vq.codebooks_of(self.tokenizer.encoder.quantizer.semantic_residual_vector_quantizer)

    @property
    def _acoustic(self) -> list[EncoderCodebook]:
        return vq.codebooks_of(self.tokenizer.encoder.quantizer.acoustic_residual_vector_quantizer)

    def vectors(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors that codebook 0 and the others quantize, each (rows, frames, width).

        In float32, as in use: an encoder that was trained in bfloat16 hears something else without it.
        """
        with torch.autocast(waveform.device.type, enabled=False):
            return vq.vectors_of(self.tokenizer.encoder.quantizer, self._encode(waveform))

    @torch.no_grad()
    def _entries(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        rest = [book.decode(codes[..., number + 1]) for number, book in enumerate(self._acoustic)]
        return self._semantic[0].decode(codes[..., 0]), torch.stack(rest)

    def _codebook_0_loss(self, first: Tensor, codes: Tensor) -> Tensor:
        """Cross-entropy of the nearest entry, since distance alone would accept the average of two entries."""
        book = self._semantic[0]
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
