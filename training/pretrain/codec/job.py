"""Everything a run of the speech tokenizer's training depends on; saved with its state."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from training.former_names import with_current_names
from training.model.config import CodecDecoderConfig, CodecEncoderConfig, SpeechTokenizerConfig
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.run.stage_job import StageJob

SAMPLES_PER_FRAME = 1280
"""12.5 frames per second at 16 kHz."""

NUM_CODEBOOKS = 16

_ENCODER_RATIOS = (8, 5, 4, 4)
FILTER_BANK_RATIOS = (4, 8, 5, 4)
"""So that the convolution before the last that changes the rate makes a step every 10 ms, as the analysis does."""
_MIN_FILTER_BANK = {"num_filters": 32, "hidden_size": 192}
"""Room for all filters, and for all that is read from them."""
_DECODER_RATES = (8, 5, 4, 2)
_DECODER_RATIOS = (2, 2)

# Crops drawn in one step on a GPU, relative to the CPU's: the step is bound by launches, not by arithmetic.
_GPU_BATCH_FACTOR = 8


# As jobs of version 0.1 spell them.
_FORMER_NAMES = {
    "adversary_width": "discriminator_width",
    "adversary_learning_rate": "discriminator_learning_rate",
    "num_steps_before_opponents": "num_steps_before_discriminators",
    "first_code_weight": "codebook_0_weight",
    "dropout_share": "dropout_ratio",
    # 0 (false) is the same. True was all speech, and what resumes such a run is refused as another recipe.
    "long_windows": "long_windows_below_hz",
}


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TokenizerSize(_Frozen):
    """Widths and depths of the network; its rates are fixed."""

    num_filters: PositiveInt = 16
    hidden_size: PositiveInt = 192
    num_layers: PositiveInt = 2
    num_encoder_layers: PositiveInt | None = None
    """Of the encoder's transformer; None: as many as the decoder's."""
    filter_bank: bool = False
    """Whether the encoder's convolutions are the filters of the analysis, and stay so."""
    head_dim: PositiveInt = 48
    # A training step on a CPU has about a hundred frames. With 256 entries, each is assigned often enough for a useful
    # running mean, and the talker has half as many to choose from as with 512.
    codebook_size: PositiveInt = 256
    codebook_width: PositiveInt = 64
    decoder_size: PositiveInt = 128
    decoder_window_frames: PositiveInt = 16
    """Not longer than the longer crops, so that the window is as full in training as it is in use."""
    discriminator_width: PositiveInt = 32
    num_refinements: NonNegativeInt = 0
    """ConvNeXt blocks of the decoder at its lower rate, beyond those that raise it: depth where it costs little."""

    @model_validator(mode="before")
    @classmethod
    def _accept_former_names(cls, raw: Any) -> Any:  # Any: pydantic's input, of any type
        return with_current_names(raw, _FORMER_NAMES)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, smallest in _MIN_FILTER_BANK.items():
            if self.filter_bank and getattr(self, name) < smallest:
                raise ValueError(f"with filter_bank, {name} must be at least {smallest}")
        return self

    def config(self) -> SpeechTokenizerConfig:
        """The public format's configuration of this network."""
        num_heads = self.hidden_size // self.head_dim
        encoder = CodecEncoderConfig(
            hidden_size=self.hidden_size,
            num_filters=self.num_filters,
            upsampling_ratios=FILTER_BANK_RATIOS if self.filter_bank else _ENCODER_RATIOS,
            num_hidden_layers=self.num_encoder_layers or self.num_layers,
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
            upsampling_ratios=_DECODER_RATIOS + (1,) * self.num_refinements,
            sliding_window=self.decoder_window_frames,
        )
        assert math.prod(_DECODER_RATES) * math.prod(_DECODER_RATIOS) == SAMPLES_PER_FRAME
        return SpeechTokenizerConfig(
            encoder=encoder,
            decoder=decoder,
            input_sample_rate=SAMPLE_RATE_HZ,
            output_sample_rate=SAMPLE_RATE_HZ,
            encode_downsample_rate=SAMPLES_PER_FRAME,
            # Its crops are whole frames: of a part of one its encoder would make nonsense.
            encodes_whole_frames=True,
            decode_upsample_rate=SAMPLES_PER_FRAME,
            encoder_valid_num_quantizers=NUM_CODEBOOKS,
        )


class CropShape(_Frozen):
    """One kind of training batch: crops of equal length."""

    share: PositiveFloat
    """How often a step draws this kind, relative to the others."""
    num_crops: PositiveInt
    num_frames: PositiveInt


# Short crops make varied batches. But the encoder attends to all earlier frames, so it must be trained on long crops
# as well.
_CPU_CROPS = (
    CropShape(share=0.7, num_crops=12, num_frames=8),
    CropShape(share=0.2, num_crops=4, num_frames=24),
    CropShape(share=0.1, num_crops=2, num_frames=48),
)


# Without the decoder a step has room for more. An encoder is used on whole recordings, and where a crop begins it
# lacks what went before.
ENCODER_CROPS = (
    CropShape(share=0.5, num_crops=12, num_frames=16),
    CropShape(share=0.3, num_crops=8, num_frames=24),
    CropShape(share=0.2, num_crops=4, num_frames=48),
)


class TokenizerJob(StageJob):
    """The recipe of one run, which cannot be resumed with another one."""

    trained: ClassVar[str] = "tokenizer"

    size: TokenizerSize = TokenizerSize()
    crops: tuple[CropShape, ...] = _CPU_CROPS

    num_fitted_utterances: PositiveInt = 5000
    """Number of utterances that the codebooks are fitted to."""

    muon_learning_rate: PositiveFloat = 0.01
    peak_learning_rate: PositiveFloat = 1.5e-3
    min_lr_ratio: NonNegativeFloat = 0.01
    adam_betas: tuple[float, float] = (0.8, 0.98)
    max_gradient_norm: PositiveFloat = 2.0

    waveform_weight: NonNegativeFloat = 0.5
    long_windows_below_hz: NonNegativeFloat = 0.0
    """Where speech is voiced below this pitch, judge what is decoded in long windows only. See `SHORT`."""
    periodicity_weight: NonNegativeFloat = 0.0
    """Of what decoded speech lacks in pitch, see `PeriodicityLoss`."""
    repetition_weight: NonNegativeFloat = 0.0
    """Of what decoded speech repeats from frame to frame, see `RepetitionLoss`; needs crops of two frames or more."""
    imitation_weight: NonNegativeFloat = 1.0
    """Of the distance between the encoder's vectors and those of the analysis."""
    codebook_0_weight: NonNegativeFloat = 0.2
    """Of the encoder's cross-entropy for codebook 0."""

    dropout_ratio: NonNegativeFloat = 0.2
    """Share of crops that are decoded from the first few acoustic codebooks only."""

    joint_from: float | None = Field(default=None, ge=0, le=1)
    """Share of the run after which the decoder is given the encoder's codes, and both learn from the decoded speech.

    None: the encoder only imitates the analysis."""
    analysed_share: float = Field(default=0.0, ge=0, le=1)
    """With `joint_from`: share of crops decoded from the analysis's codes, for talkers trained on those."""
    channel_share: float = Field(default=0.0, ge=0, le=1)
    """With `joint_from`: share of crops that sound as over a telephone, in a room or with noise."""
    codebooks_learn: bool = False
    """With `joint_from`: the acoustic codebooks follow the encoder and lose their meaning of the analysis. Codebook 0,
    which stands for the content, keeps it."""
    codebooks_stay: bool = False
    """With `joint_from`: encoder and decoder learn on codebooks that learnt before, and which stay. The encoder is free
    to choose other acoustic codes, which a talker has to learn after more than a few hundred steps."""
    heard_imitation_weight: NonNegativeFloat = 0.1
    """With `joint_from`: factor of the imitation of acoustic vectors, unless their codebooks learn or learnt before."""
    commitment_weight: NonNegativeFloat = 0.25
    """With `joint_from`: of the distance between the encoder's acoustic vectors and their entries."""

    adversarial: bool = False
    discriminator_learning_rate: PositiveFloat = 1e-3
    """Of the discriminators, by AdamW."""
    discriminated_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of a step's crops that discriminators judge, which take most of the time; one at least."""
    num_steps_before_discriminators: NonNegativeInt = 1000
    """Adversarial training starts once the decoder makes speech; earlier, it only teaches the decoder to hiss."""

    decoder_only: bool = False
    """Keep the encoder as it is, so that codes keep their meaning for trained talkers. With `joint_from`, the decoder
    hears the encoder's codes as well as those of the analysis."""
    encoder_only: bool = False
    """Keep codebooks and decoder as they are, and train the encoder to imitate the analysis of altered speech."""
    altered_share: float = Field(default=0.7, ge=0, le=1)
    """With `encoder_only` or `decoder_only`: share of utterances that are altered before they are analysed."""
    learned_altered_share: float = Field(default=0.0, ge=0, le=1)
    """With `codebooks_learn` or `codebooks_stay`, instead of `channel_share`: the same."""
    deepened_share: float = Field(default=0.0, ge=0, le=1)
    """Of altered speech: how much is made deep, as far as it can be. See `deepened`."""
    bfloat16: bool = False
    """Compute in bfloat16, with weights in float32: half the time on processors with AMX."""

    validate_every: PositiveInt = 500
    log_every: PositiveInt = 20

    @model_validator(mode="before")
    @classmethod
    def _accept_names_of_tokenizers(cls, raw: Any) -> Any:  # Any: pydantic's input, of any type
        return with_current_names(raw, _FORMER_NAMES)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.validate_every % self.log_every:
            raise ValueError("validate_every must be a multiple of log_every")
        if self.decoder_only and (self.is_freely_encoded or self.channel_share > 0):
            raise ValueError("decoder_only goes with none of codebooks_learn, codebooks_stay and channel_share")
        if self.encoder_only and (self.joint_from is not None or self.decoder_only or self.adversarial):
            raise ValueError("encoder_only goes with none of joint_from, decoder_only and adversarial")
        if self.repetition_weight > 0 and min(crop.num_frames for crop in self.crops) < 2:
            raise ValueError("repetition_weight needs crops of two frames or more")
        if self.codebooks_learn and self.codebooks_stay:
            raise ValueError("codebooks either learn or stay")
        if self.is_freely_encoded and (self.joint_from is None or self.analysed_share > 0):
            raise ValueError(
                "codebooks_learn and codebooks_stay need joint_from, and no analysed_share: its codes mean nothing"
            )
        if self.learned_altered_share > 0 and (not self.is_freely_encoded or self.channel_share > 0):
            raise ValueError(
                "learned_altered_share needs codebooks_learn or -stay, and no channel_share: altering includes it"
            )
        alters = self.encoder_only or self.decoder_only or self.learned_altered_share > 0
        if self.deepened_share > 0 and not alters:
            raise ValueError("deepened_share needs speech that is altered, of which it is a share")
        return self

    @property
    def is_freely_encoded(self) -> bool:
        """Whether acoustic codes are what the encoder finds, and need not be those of the analysis."""
        return self.codebooks_learn or self.codebooks_stay

    @classmethod
    def of_length(cls, num_steps: int, **changes: Any) -> Self:
        """The recipe for a run of `num_steps`: short runs have a shorter warm-up and earlier adversarial training.

        Raises:
            PretrainError: an option is out of range, such as the number of steps.
        """
        num_warmup_steps = min(cls.model_fields["num_warmup_steps"].default, -(-num_steps // 20))
        num_before = min(cls.model_fields["num_steps_before_discriminators"].default, num_steps // 8)
        shorter = {"num_warmup_steps": num_warmup_steps, "num_steps_before_discriminators": num_before}
        return cls.of_options(num_steps=num_steps, **{**shorter, **changes})

    def for_gpu(self) -> Self:
        """The same recipe with batches that keep a GPU busy."""
        crops = [crop.model_copy(update={"num_crops": crop.num_crops * _GPU_BATCH_FACTOR}) for crop in self.crops]
        return self.model_copy(update={"crops": tuple(crops)})
