# Shape letters: F codec frame, Q codebook, D talker width.
"""From what is asked for to what the frame loop decodes; refuses here what could harm other takes there."""

from __future__ import annotations

import torch

from training.model.errors import PromptError
from training.model.generation.frame_loop import FrameRequest
from training.model.generation.take_request import TakeRequest, VoicePrompt, build_prompt
from training.model.prompt.length import frame_cap
from training.model.seed import draw_seed
from training.model.voice_model import VoiceModel


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
    )


def check_voice(model: VoiceModel, voice: VoicePrompt) -> None:
    """Refuse a voice made for another model, or broken: its numbers would be looked up in tables beside others'.

    Raises:
        PromptError: shapes or values that are none of this model.
    """
    width, num_codebooks = model.config.talker.hidden_size, model.config.talker.num_code_groups
    speaker, codes = voice.speaker, voice.reference_codes
    if speaker is not None and not (speaker.shape == (width,) and bool(torch.isfinite(speaker).all())):
        raise PromptError(f"This voice does not fit the model, whose voices have {width} numbers. Clone it again.")
    if codes is None:
        return
    if codes.ndim != 2 or codes.shape[1] != num_codebooks:
        raise PromptError(f"This voice does not fit the model, which has {num_codebooks} codebooks. Clone it again.")
    size = model.speech_tokenizer.config.decoder.codebook_size
    if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < size:
        raise PromptError("The codes of this voice are not this model's. Clone it again.")
