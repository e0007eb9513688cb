"""The reference checkpoint: tiny sizes, random weights, recorded outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.golden import GOLDEN_CHECKPOINT
from training.model.voice_model import VoiceModel


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    return GOLDEN_CHECKPOINT


@pytest.fixture(scope="session")
def golden_model() -> VoiceModel:
    """Loaded once and shared: tests must not change its weights."""
    return VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")


@pytest.fixture(scope="session")
def speaker(golden_model: VoiceModel) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(golden_model.config.talker.hidden_size, generator=generator) * 0.1
