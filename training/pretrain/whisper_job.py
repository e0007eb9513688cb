"""Everything a run of the transcriber's training depends on; saved beside its state."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from whisper.model import ModelDimensions

from training.pretrain.schedule import learning_rate_share

POSITIONS_PER_SECOND = 50
"""Whisper's encoder states: one for every 20 ms."""

SAMPLES_PER_POSITION = 320
NUM_POSITIONS = 1500
"""Whisper always listens to 30 seconds, most of them silence."""

NUM_MELS = 80
ENGLISH_VOCABULARY = 51_864
"""What tells an English Whisper from a multilingual one is the number of its tokens."""

_NUM_TEXT_POSITIONS = 448

# Utterances of one step on a GPU, relative to the CPU's.
_GPU_BATCH_FACTOR = 8


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WhisperSize(_Frozen):
    """Widths and depths of the network; its rates are Whisper's."""

    width: PositiveInt = 192
    # Three wide heads take half the time of six narrow ones on a processor.
    num_heads: PositiveInt = 3
    num_encoder_layers: PositiveInt = 4
    # Whisper takes word times from the latter half of the decoder's layers: of three, from the last two.
    num_decoder_layers: PositiveInt = 3

    def dimensions(self, vocabulary_size: int = ENGLISH_VOCABULARY) -> ModelDimensions:
        """This network in Whisper's own terms."""
        return ModelDimensions(
            n_mels=NUM_MELS,
            n_audio_ctx=NUM_POSITIONS,
            n_audio_state=self.width,
            n_audio_head=self.num_heads,
            n_audio_layer=self.num_encoder_layers,
            n_vocab=vocabulary_size,
            n_text_ctx=_NUM_TEXT_POSITIONS,
            n_text_state=self.width,
            n_text_head=self.num_heads,
            n_text_layer=self.num_decoder_layers,
        )


class WhisperJob(_Frozen):
    """The recipe of one run. Resuming it with another one is refused."""

    seed: NonNegativeInt = 1
    num_steps: PositiveInt = 6000
    size: WhisperSize = WhisperSize()
    num_text_tokens: PositiveInt = 768
    """The first so many of Whisper's tokens spell all text: pieces of two letters, met often enough to be learnt."""

    positions_per_step: PositiveInt = 2400
    """How much sound a step hears: fifteen utterances of three seconds."""
    joined_share: NonNegativeFloat = 0.3
    """Steps that hear two or three utterances in a row."""
    long_share: NonNegativeFloat = 0.06
    """Steps that hear all 30 seconds, as Whisper does in use: mostly silence, or many utterances."""
    silent_share: NonNegativeFloat = 0.03
    """Pieces in which nobody speaks."""

    matrix_learning_rate: PositiveFloat = 0.02
    vector_learning_rate: PositiveFloat = 3e-3
    final_learning_rate: NonNegativeFloat = 0.02
    """Relative to the peak."""
    num_warmup_steps: PositiveInt = 100
    max_gradient_norm: PositiveFloat = 2.0
    average_decay: PositiveFloat = 0.998
    """Of the running mean of the weights, which is what is shipped."""

    letters_weight: NonNegativeFloat = 0.5
    guidance_weight: NonNegativeFloat = 1.0
    final_guidance_weight: NonNegativeFloat = 0.1
    """Never quite zero: word times are read from the guided heads."""
    guidance_share: PositiveFloat = 0.6
    """Of the run, over which guidance fades to its final weight."""
    wrong_token_share: NonNegativeFloat = 0.1
    """Tokens shown wrong to the decoder, which must then listen instead of guessing from what it wrote."""

    validate_every: PositiveInt = 500
    log_every: PositiveInt = 20

    def for_gpu(self) -> Self:
        """The same recipe with batches that keep a GPU busy."""
        return self.model_copy(update={"positions_per_step": self.positions_per_step * _GPU_BATCH_FACTOR})

    def learning_rate_share(self, step: int) -> float:
        """Of the peaks, at a step."""
        return learning_rate_share(
            step, num_steps=self.num_steps, num_warmup_steps=self.num_warmup_steps, final_share=self.final_learning_rate
        )

    def guidance(self, step: int) -> float:
        """How much a step cares where the guided heads look."""
        left = max(0.0, 1 - step / (self.guidance_share * self.num_steps))
        return self.final_guidance_weight + (self.guidance_weight - self.final_guidance_weight) * left
