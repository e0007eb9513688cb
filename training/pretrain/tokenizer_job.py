"""Everything a run of the speech tokenizer's training depends on; saved beside its state."""

from __future__ import annotations

import math
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from training.model.config import CodecDecoderConfig, CodecEncoderConfig, SpeechTokenizerConfig
from training.pretrain.engines import SAMPLE_RATE_HZ
from training.pretrain.errors import PretrainError

SAMPLES_PER_FRAME = 1280
"""12.5 frames per second at 16 kHz."""

NUM_CODEBOOKS = 16

_ENCODER_RATIOS = (8, 5, 4, 4)
_DECODER_RATES = (8, 5, 4, 2)
_DECODER_RATIOS = (2, 2)

# Crops drawn in one step on a GPU, relative to the CPU's: the step is bound by launches, not by arithmetic.
_GPU_BATCH_FACTOR = 8


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TokenizerSize(_Frozen):
    """Widths and depths of the network; its rates are fixed."""

    num_filters: PositiveInt = 16
    hidden_size: PositiveInt = 192
    num_layers: PositiveInt = 2
    head_dim: PositiveInt = 48
    # A training step on a CPU sees about a hundred frames. With 256 entries each is found often enough for its
    # running mean to be one, and the talker has half as many to choose from.
    codebook_size: PositiveInt = 256
    codebook_width: PositiveInt = 64
    decoder_size: PositiveInt = 128
    decoder_window_frames: PositiveInt = 16
    """No longer than the longer crops, so that the window is full in training as it is in use."""
    adversary_width: PositiveInt = 32

    def config(self) -> SpeechTokenizerConfig:
        """The public format's configuration of this network."""
        num_heads = self.hidden_size // self.head_dim
        encoder = CodecEncoderConfig(
            hidden_size=self.hidden_size,
            num_filters=self.num_filters,
            upsampling_ratios=_ENCODER_RATIOS,
            num_hidden_layers=self.num_layers,
            num_attention_heads=num_heads,
            num_key_value_heads=num_heads,
            head_dim=self.head_dim,
            intermediate_size=4 * self.hidden_size,
            codebook_size=self.codebook_size,
            codebook_dim=self.codebook_width,
            num_quantizers=NUM_CODEBOOKS,
            vector_quantization_hidden_dimension=self.codebook_width,
        )
        decoder = CodecDecoderConfig(
            codebook_size=self.codebook_size,
            codebook_dim=2 * self.codebook_width,
            latent_dim=self.hidden_size,
            decoder_dim=self.decoder_size,
            hidden_size=self.hidden_size,
            # SwiGLU has three matrices instead of two: two thirds of the usual width cost the same.
            intermediate_size=8 * self.hidden_size // 3,
            num_hidden_layers=self.num_layers,
            num_attention_heads=num_heads,
            num_key_value_heads=num_heads,
            head_dim=self.head_dim,
            num_quantizers=NUM_CODEBOOKS,
            upsample_rates=_DECODER_RATES,
            upsampling_ratios=_DECODER_RATIOS,
            sliding_window=self.decoder_window_frames,
        )
        assert math.prod(_DECODER_RATES) * math.prod(_DECODER_RATIOS) == SAMPLES_PER_FRAME
        return SpeechTokenizerConfig(
            encoder=encoder,
            decoder=decoder,
            input_sample_rate=SAMPLE_RATE_HZ,
            output_sample_rate=SAMPLE_RATE_HZ,
            encode_downsample_rate=SAMPLES_PER_FRAME,
            decode_upsample_rate=SAMPLES_PER_FRAME,
            encoder_valid_num_quantizers=NUM_CODEBOOKS,
        )


class CropShape(_Frozen):
    """One kind of training batch: equally long pieces of speech."""

    share: PositiveFloat
    """How often a step draws this kind, relative to the others."""
    num_crops: PositiveInt
    num_frames: PositiveInt


# Short crops make varied batches. The encoder attends to everything it has heard, though, so it has to learn on
# long ones too what to do with more than it needs.
_CPU_CROPS = (
    CropShape(share=0.7, num_crops=12, num_frames=8),
    CropShape(share=0.2, num_crops=4, num_frames=24),
    CropShape(share=0.1, num_crops=2, num_frames=48),
)


class TokenizerJob(_Frozen):
    """The recipe of one run. Resuming it with another one is refused."""

    seed: NonNegativeInt = 1
    num_steps: PositiveInt = 16_000
    size: TokenizerSize = TokenizerSize()
    crops: tuple[CropShape, ...] = _CPU_CROPS

    num_continuous_steps: NonNegativeInt = 1500
    """Steps before there are codes: an autoencoder whose latents are noisy instead of quantized."""
    latent_noise: NonNegativeFloat = 0.1
    """Relative to the latents' own root mean square."""
    num_start_batches: PositiveInt = 100
    """Batches whose latents the codebooks are started from."""

    peak_learning_rate: PositiveFloat = 1.5e-3
    final_learning_rate: NonNegativeFloat = 1.5e-5
    num_warmup_steps: PositiveInt = 300
    adam_betas: tuple[float, float] = (0.8, 0.98)
    weight_decay: NonNegativeFloat = 0.01
    max_gradient_norm: PositiveFloat = 2.0

    waveform_weight: NonNegativeFloat = 0.5
    commitment_weight: NonNegativeFloat = 0.25
    content_weight: NonNegativeFloat = 0.3

    codebook_decay: PositiveFloat = 0.98
    """Of the running means at the peak learning rate; they average over longer as the encoder slows down."""
    dropout_share: NonNegativeFloat = 0.4
    """Crops of which only the first few acoustic codebooks are used."""
    unquantized_share: NonNegativeFloat = 0.1

    adversarial: bool = False

    validate_every: PositiveInt = 500
    log_every: PositiveInt = 20

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.num_continuous_steps >= self.num_steps:
            raise ValueError(
                f"{self.num_steps} steps leave none for the codes, which begin at {self.num_continuous_steps}"
            )
        if self.validate_every % self.log_every:
            raise ValueError("validate_every must be a multiple of log_every")
        return self

    @classmethod
    def of_length(cls, num_steps: int, **changes: Any) -> Self:
        """The recipe for a run of `num_steps`: short runs begin their codes and end their warm-up sooner.

        Raises:
            PretrainError: so few steps make no tokenizer.
        """
        full = cls.model_fields
        proportions = {"num_continuous_steps": 8, "num_warmup_steps": 40, "num_start_batches": 40}
        sooner = {name: min(full[name].default, -(-num_steps // part)) for name, part in proportions.items()}
        try:
            return cls(num_steps=num_steps, **{**sooner, **changes})
        except ValidationError as error:
            reasons = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())
            raise PretrainError(f"No tokenizer can be trained like this: {reasons}.") from error

    def for_gpu(self) -> Self:
        """The same recipe with batches that keep a GPU busy."""
        crops = [crop.model_copy(update={"num_crops": crop.num_crops * _GPU_BATCH_FACTOR}) for crop in self.crops]
        return self.model_copy(update={"crops": tuple(crops)})

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to the final rate at the last step."""
        if step < self.num_warmup_steps:
            return self.peak_learning_rate * (step + 1) / self.num_warmup_steps
        progress = (step - self.num_warmup_steps) / max(1, self.num_steps - self.num_warmup_steps)
        above = self.peak_learning_rate - self.final_learning_rate
        return self.final_learning_rate + above * (1 + math.cos(math.pi * min(1.0, progress))) / 2

    def codebook_decay_at(self, step: int) -> float:
        """How much of the running means a step keeps: entries move as fast as what they follow, within a factor."""
        speed = max(0.1, self.learning_rate(step) / self.peak_learning_rate)
        return 1 - (1 - self.codebook_decay) * speed
