# Shape letters: F codec frame, Q codebook, D talker width.
"""What to say and in whose voice, and how that is laid out for a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from training.model.prompt.prompt import Prompt, PromptHead, in_context_prompt, named_speaker_prompt, x_vector_prompt
from training.model.sampling import Sampling
from training.model.voice_model import VoiceModel


@dataclass(frozen=True, kw_only=True)
class VoicePrompt:
    """What makes a take sound like somebody.

    Attributes:
        speaker: speaker embedding (D,); None for a speaker the checkpoint knows by name, or for none.
        reference_codes: codes (F, Q) of a recording to continue, for in-context cloning.
        reference_text: what that recording says; both or neither.
        speaker_name: a `custom_voice` checkpoint's speaker.
    """

    speaker: Tensor | None = None
    reference_codes: Tensor | None = None
    reference_text: str | None = None
    speaker_name: str | None = None

    @property
    def is_in_context(self) -> bool:
        """Whether takes continue a recording rather than follow an embedding alone."""
        return self.reference_codes is not None and bool(self.reference_text)


@dataclass(frozen=True, kw_only=True)
class TakeRequest:
    """What to say and how.

    Attributes:
        text: one sentence or a few; longer texts are split by the caller.
        voice: who speaks.
        language: `auto` or one of the checkpoint's languages.
        seed: decides the take; None draws one, and allows a second try when the first runs away.
        sampling: None for the checkpoint's own.
        instruction: how to say it, for checkpoints that follow instructions.
        streaming_text: run the text beside the frames instead of reading all of it first.
        max_frames: cap on frames; None derives it from the text.
    """

    text: str
    voice: VoicePrompt
    language: str = "auto"
    seed: int | None = None
    sampling: Sampling | None = None
    instruction: str = ""
    streaming_text: bool = False
    max_frames: int | None = None


def build_prompt(model: VoiceModel, request: TakeRequest) -> Prompt:
    """Lay a request out for the talker. Raises PromptError when it cannot be."""
    voice, tokenizer = request.voice, model.text_tokenizer
    head = PromptHead(
        role_ids=tokenizer.role_ids,
        language=request.language,
        speaker=voice.speaker_name,
        has_speaker=voice.speaker is not None,
        instruction_ids=tokenizer.encode_instruction(request.instruction),
    )
    text_ids = tokenizer.encode_text(request.text)
    if voice.speaker_name is not None:
        return named_speaker_prompt(model.config, head, text_ids, streaming_text=request.streaming_text)
    if voice.is_in_context:
        assert voice.reference_codes is not None
        assert voice.reference_text is not None
        return in_context_prompt(
            model.config,
            head,
            text_ids,
            reference_text_ids=tokenizer.encode_text(voice.reference_text),
            reference_codes_FQ=voice.reference_codes,
            streaming_text=request.streaming_text,
        )
    return x_vector_prompt(model.config, head, text_ids, streaming_text=request.streaming_text)
