"""Prompts for tests."""

from __future__ import annotations

from training.model.prompt.prompt import Prompt, PromptHead, x_vector_prompt
from training.model.voice_model import VoiceModel


def prompt_for(model: VoiceModel, text: str, *, language: str = "auto", streaming_text: bool = False) -> Prompt:
    tokenizer = model.text_tokenizer
    head = PromptHead(role_ids=tokenizer.role_ids, language=language)
    return x_vector_prompt(model.config, head, tokenizer.encode_text(text), streaming_text=streaming_text)
