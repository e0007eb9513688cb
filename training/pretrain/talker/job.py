"""Everything a run of the talker's training depends on; saved with its state."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from training.model.config import (
    NUM_CONTROL_CODES,
    CodePredictorConfig,
    ModelConfig,
    SpeakerEncoderConfig,
    TalkerConfig,
)
from training.pretrain.codec.job import NUM_CODEBOOKS
from training.pretrain.errors import PretrainError
from training.pretrain.run.stage_job import StageJob
from training.pretrain.run.training_state import has_state, read_job
from training.pretrain.talker.text_tokenizer import VOCAB_SIZE, special_token_ids

LANGUAGE = "english"

UNCONDITIONAL_SHARE = 0.1
"""Of new runs: usual with classifier-free guidance. A job's own default is that of runs from before there was any."""

MIN_PACE, MAX_PACE = 0.5, 2.0

_HEAD_DIM = 64
# Offsets of the codec vocabulary's control ids, which follow the codes.
_EOS, _BOS, _PAD, _THINK, _NO_THINK, _THINK_BOS, _THINK_EOS, _ENGLISH = range(8)
_MAX_POSITIONS = 4096
_GPU_BATCH_FACTOR = 8


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TalkerSize(_Frozen):
    """Widths and depths of talker, code predictor and speaker encoder."""

    width: PositiveInt = 256
    num_layers: PositiveInt = 6
    predictor_width: PositiveInt = 256
    # A layer takes as much time per frame as ten of the talker's, since it runs once per codebook.
    num_predictor_layers: PositiveInt = 2
    speaker_channels: PositiveInt = 128
    codebook_size: PositiveInt = 256

    def config(self) -> ModelConfig:
        """The public format's configuration of these networks."""
        special = special_token_ids()
        codes = self.codebook_size
        talker = TalkerConfig(
            hidden_size=self.width,
            intermediate_size=4 * self.width,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.width // _HEAD_DIM,
            num_key_value_heads=max(1, self.width // _HEAD_DIM // 2),
            head_dim=_HEAD_DIM,
            max_position_embeddings=_MAX_POSITIONS,
            vocab_size=codes + NUM_CONTROL_CODES,
            text_vocab_size=VOCAB_SIZE,
            text_hidden_size=self.width,
            num_code_groups=NUM_CODEBOOKS,
            codec_bos_id=codes + _BOS,
            codec_eos_token_id=codes + _EOS,
            codec_pad_id=codes + _PAD,
            codec_think_id=codes + _THINK,
            codec_nothink_id=codes + _NO_THINK,
            codec_think_bos_id=codes + _THINK_BOS,
            codec_think_eos_id=codes + _THINK_EOS,
            codec_language_id={LANGUAGE: codes + _ENGLISH},
        )
        predictor = CodePredictorConfig(
            hidden_size=self.predictor_width,
            intermediate_size=4 * self.predictor_width,
            num_hidden_layers=self.num_predictor_layers,
            num_attention_heads=self.predictor_width // _HEAD_DIM,
            num_key_value_heads=max(1, self.predictor_width // _HEAD_DIM // 2),
            head_dim=_HEAD_DIM,
            max_position_embeddings=NUM_CODEBOOKS,
            vocab_size=codes,
            num_code_groups=NUM_CODEBOOKS,
        )
        channels = self.speaker_channels
        return ModelConfig(
            talker=talker,
            code_predictor=predictor,
            speaker_encoder=SpeakerEncoderConfig(
                enc_dim=self.width,
                enc_channels=(channels,) * 4 + (3 * channels,),
                enc_attention_channels=channels // 2,
                enc_res2net_scale=4,
                enc_se_channels=channels // 2,
            ),
            tts_model_type="base",
            tts_model_size="mini",
            tts_pad_token_id=special["<tts_pad>"],
            tts_bos_token_id=special["<tts_text_bos>"],
            tts_eos_token_id=special["<tts_text_eod>"],
            im_start_token_id=special["<|im_start|>"],
            im_end_token_id=special["<|im_end|>"],
        )


class TalkerJob(StageJob):
    """The recipe of one run, which cannot be resumed with another one."""

    trained: ClassVar[str] = "talker"

    size: TalkerSize = TalkerSize()

    max_positions: PositiveInt = 4000
    """In a batch, padding included."""
    in_context_ratio: float = Field(default=0.3, ge=0, le=1)
    """Share of batches in which utterances continue a reference by the same speaker."""
    references_per_speaker: PositiveInt = 4
    """Utterances of each speaker that may be continued, joined or alone."""
    explicit_language_ratio: NonNegativeFloat = 0.5
    keeps_speaker_encoder: bool = False
    """Where it was trained alone: learning with the talker, it would forget whom the corpus does not have."""
    speaker_encoder_rate: PositiveFloat = Field(default=1.0, le=1)
    """Of the learning rates: slower where it was trained alone, and should forget little."""
    misheard_share: float = Field(default=0.0, ge=0, le=1)
    """Of the past frames' codes, at most: exchanged for others, see mishearing.py."""
    blended_share: float = Field(default=0.0, ge=0, le=1)
    """Of the utterances that continue a reference: their speaker embedding is partly another's, see blending.py."""
    pace: float = Field(default=1.0, ge=MIN_PACE, le=MAX_PACE)
    """Of what it learns to say, relative to the recordings. Engines speak faster than people, and the talker gives
    voices that it does not know the engines' pace."""
    unconditional_share: float = Field(default=0.0, ge=0, le=1)
    """Of the utterances: learnt without their text and speaker, so that takes can be guided away from such speech."""
    # Fine-tuning has a quarter and .3. Of what mini's talker loses in understanding, its code predictor loses most.
    code_predictor_fraction: PositiveFloat = 0.5
    code_predictor_weight: NonNegativeFloat = 1.0

    guidance_weight: NonNegativeFloat = 0.5
    """Of guided attention at the first step; it fades linearly to zero."""
    guidance_until: PositiveFloat = 0.6
    """Share of the run at which guidance ends."""

    muon_learning_rate: PositiveFloat = 0.015
    peak_learning_rate: PositiveFloat = 2e-3
    min_lr_ratio: NonNegativeFloat = 0.02
    adam_betas: tuple[float, float] = (0.9, 0.98)
    max_gradient_norm: PositiveFloat = 1.0

    validate_every: PositiveInt = 250
    log_every: PositiveInt = 10

    @classmethod
    def share_for(cls, run: Path, asked: float | None) -> float:
        """The unconditional share of a run: as asked for, or what a saved one has, or that of new ones."""
        if asked is not None:
            return asked
        return cls.model_validate(read_job(run)).unconditional_share if has_state(run) else UNCONDITIONAL_SHARE

    @classmethod
    def of_length(cls, num_steps: int, **changes: Any) -> Self:
        """The recipe for a run of `num_steps`: short runs have a shorter warm-up.

        Raises:
            PretrainError: an option is out of range, such as the number of steps.
        """
        num_warmup_steps = min(cls.model_fields["num_warmup_steps"].default, -(-num_steps // 20))
        return cls.of_options(num_steps=num_steps, **{"num_warmup_steps": num_warmup_steps, **changes})

    def at_learning_rate(self, muon_learning_rate: float) -> Self:
        """The same recipe at another rate of Muon; AdamW's changes in proportion.

        Raises:
            PretrainError: the rate is not above 0.
        """
        if not 0 < muon_learning_rate < math.inf:
            raise PretrainError(f"The learning rate is {muon_learning_rate}; choose one above 0, such as 0.008.")
        peak = self.peak_learning_rate * muon_learning_rate / self.muon_learning_rate
        return self.model_copy(update={"muon_learning_rate": muon_learning_rate, "peak_learning_rate": peak})

    def for_gpu(self) -> Self:
        """The same recipe with batches that keep a GPU busy."""
        return self.model_copy(update={"max_positions": self.max_positions * _GPU_BATCH_FACTOR})

    def guidance_weight_at(self, step: int) -> float:
        """The weight of guidance at a step."""
        return self.guidance_weight * max(0.0, 1 - step / (self.guidance_until * self.num_steps))
