# Shape letters: F codec frame, Q codebook, D talker width.
"""What to say and in whose voice, and how that is laid out for a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from training.model.errors import PromptError
from training.model.generation.adapter import Adapter
from training.model.generation.frame_loop import FrameRequest, Guidance, MoveFrame
from training.model.generation.timbre_match import TimbreMatch
from training.model.prompt.length import frame_cap
from training.model.prompt.prompt import (
    Prompt,
    PromptHead,
    in_context_prompt,
    named_speaker_prompt,
    unconditional_prompt,
    x_vector_prompt,
)
from training.model.sampling_settings import Sampling
from training.model.seed import draw_seed
from training.model.voice_model import VoiceModel


@dataclass(frozen=True, kw_only=True)
class VoicePrompt:
    """What makes a take sound like somebody.

    Attributes:
        speaker: speaker embedding (D,); None for a speaker the checkpoint knows by name, or for none.
        reference_codes: codes (F, Q) of a recording to continue, for in-context cloning.
        reference_text: what that recording says; both or neither.
        speaker_name: a `custom_voice` checkpoint's speaker.
        adapter: beside the model's weights; None for those alone.
        timbre: moves takes to the timbre of a recording, see timbre_match.py; found for the weights without adapter.
    """

    speaker: Tensor | None = None
    reference_codes: Tensor | None = None
    reference_text: str | None = None
    speaker_name: str | None = None
    adapter: Adapter | None = None
    timbre: TimbreMatch | None = None

    @property
    def is_in_context(self) -> bool:
        """Whether takes continue a recording rather than follow an embedding alone."""
        return self.reference_codes is not None and bool(self.reference_text)

    @property
    def tensors(self) -> list[Tensor]:
        """All that was computed from a recording."""
        timbre = self.timbre
        found = [self.speaker, self.reference_codes, *((timbre.matrix_EE, timbre.offset_E) if timbre else ())]
        return [tensor for tensor in found if tensor is not None]

    def without_context(self) -> VoicePrompt:
        """The same voice from its embedding, without a recording to continue."""
        return replace(self, reference_codes=None, reference_text=None)

    def adapted(self, adapter: Adapter) -> VoicePrompt:
        """The same voice with an adapter, which changes what the talker makes of it."""
        return replace(self, adapter=adapter, timbre=None)


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


def lay_out(model: VoiceModel, request: TakeRequest, cache_length: int) -> FrameRequest:
    """Lay a take out for a loop with room for `cache_length` steps; draws a seed where none was asked for.

    Raises:
        PromptError: the text cannot be spoken by this checkpoint, or not by this voice, or there is no room.
    """
    check_voice(model, request.voice)
    prompt = build_prompt(model, request)
    cap = request.max_frames or frame_cap(request.text, request.language, longest=model.max_take_frames)
    room = cache_length - len(prompt.inputs)
    # A cap of our own is three times the ordinary pace, so a third of it is what speech really needs.
    if room < (cap if request.max_frames else cap // 3):
        raise PromptError(
            f"The text and reference fill {len(prompt.inputs)} of {cache_length} steps and leave too "
            "little room to speak. Use a shorter text or a shorter reference."
        )
    return FrameRequest(
        prompt=prompt,
        speaker=request.voice.speaker,
        sampling=request.sampling or model.default_sampling,
        seed=draw_seed() if request.seed is None else request.seed,
        max_frames=min(cap, room),
        adapter=request.voice.adapter,
        guidance=_guidance(model),
        move_frame=_move_frame(model, request.voice.timbre),
    )


def _move_frame(model: VoiceModel, timbre: TimbreMatch | None) -> MoveFrame | None:
    if timbre is None:
        return None
    on_device, vectors = timbre.to(model.device), model.acoustic_vectors
    return lambda codes_Q: on_device.moved(codes_Q, vectors)


def _guidance(model: VoiceModel) -> Guidance | None:
    if not model.is_guided:
        return None
    return Guidance(
        prompt=unconditional_prompt(model.config, model.text_tokenizer.role_ids), scale=model.guidance_scale
    )


def check_voice(model: VoiceModel, voice: VoicePrompt) -> None:
    """Refuse a voice made for another model, or broken: its numbers would be looked up in tables beside others'.

    Raises:
        PromptError: shapes or values that are none of this model.
    """
    width, num_codebooks = model.config.talker.hidden_size, model.config.talker.num_code_groups
    speaker, codes, timbre = voice.speaker, voice.reference_codes, voice.timbre
    if speaker is not None and not (speaker.shape == (width,) and bool(torch.isfinite(speaker).all())):
        raise PromptError(f"This voice does not fit the model, whose voices have {width} numbers. Clone it again.")
    if timbre is not None and not timbre.fits(model):
        raise PromptError("The timbre of this voice was found for another model. Clone it again.")
    if codes is None:
        return
    if codes.ndim != 2 or codes.shape[1] != num_codebooks:
        raise PromptError(f"This voice does not fit the model, which has {num_codebooks} codebooks. Clone it again.")
    size = model.speech_tokenizer.config.decoder.codebook_size
    if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < size:
        raise PromptError("The codes of this voice are not this model's. Clone it again.")
