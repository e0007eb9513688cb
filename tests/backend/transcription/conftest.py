"""A real Whisper network, tiny and with random weights, in the files that openai-whisper reads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from whisper.model import ModelDimensions, Whisper

SMALL_WHISPER = Path(__file__).with_name("small_whisper.pt")
"""Trained on synthetic English; openai-whisper reads it like any other."""

ENGLISH_TOKENS = 51_864
MULTILINGUAL_TOKENS = 51_865


def save_tiny_whisper(path: Path, *, audio_tokens: int, text_tokens: int = ENGLISH_TOKENS) -> Path:
    """Write a checkpoint that hears `audio_tokens` of 20 ms at once and writes up to 8 tokens."""
    dims = ModelDimensions(
        n_mels=80,
        n_audio_ctx=audio_tokens,
        n_audio_state=16,
        n_audio_head=2,
        n_audio_layer=1,
        n_vocab=text_tokens,
        n_text_ctx=16,
        n_text_state=16,
        n_text_head=2,
        n_text_layer=2,
    )
    torch.manual_seed(0)
    network = Whisper(dims)
    # Published weights set it; the class leaves it as it finds it in memory.
    torch.nn.init.normal_(network.decoder.positional_embedding)
    torch.save({"dims": dataclasses.asdict(dims), "model_state_dict": network.state_dict()}, path)
    return path


@pytest.fixture(scope="session")
def tiny_whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that hears four seconds at once."""
    return save_tiny_whisper(tmp_path_factory.mktemp("whisper") / "tiny.pt", audio_tokens=200)
