"""Two small tokenizers: the recorded one, and one whose every branch is loud enough to matter."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.golden import GOLDEN_CHECKPOINT
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.config import SpeechTokenizerConfig


@pytest.fixture(scope="session")
def tiny_config() -> SpeechTokenizerConfig:
    """The configuration of the golden checkpoint."""
    path = GOLDEN_CHECKPOINT / "speech_tokenizer" / "config.json"
    return SpeechTokenizerConfig.from_json(json.loads(path.read_text()))


@pytest.fixture(scope="session")
def expected() -> dict[str, Tensor]:
    """What the reference package computes."""
    return load_file(GOLDEN_CHECKPOINT / "expected.safetensors")


@pytest.fixture(scope="session")
def golden_tokenizer(tiny_config: SpeechTokenizerConfig) -> SpeechTokenizer:
    """The golden checkpoint, every tensor loaded by name."""
    tokenizer = SpeechTokenizer(tiny_config).eval()
    path = GOLDEN_CHECKPOINT / "speech_tokenizer" / "model.safetensors"
    tokenizer.load_state_dict(load_file(path), strict=True)
    return tokenizer


@pytest.fixture(scope="session")
def lively_tokenizer(tiny_config: SpeechTokenizerConfig) -> SpeechTokenizer:
    """Random weights in float64 with full-size residual branches, and a twentieth of the samples per frame.

    Checkpoints start with layer scales near zero, which would hide a wrong attention window; and in float64
    equal arithmetic is equal to 1e-10, whatever the order of the sums.
    """
    config = dataclasses.replace(
        tiny_config,
        encoder=dataclasses.replace(tiny_config.encoder, upsampling_ratios=(4, 3, 2, 2)),
        decoder=dataclasses.replace(tiny_config.decoder, upsample_rates=(4, 3, 2, 1)),
        encode_downsample_rate=96,
        decode_upsample_rate=96,
    )
    torch.manual_seed(0)
    tokenizer = SpeechTokenizer(config).eval()
    with torch.no_grad():
        for name, tensor in tokenizer.state_dict().items():
            if name.endswith((".scale", ".gamma")):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith((".alpha", ".beta")):
                tensor.uniform_(-0.3, 0.3)  # much more, and the snakes turn rounding errors into noise
            elif name.endswith(("embed_sum", "embedding_sum")):
                tensor.normal_()
    return tokenizer.double()


@pytest.fixture(scope="session")
def whole_frame_tokenizer(lively_tokenizer: SpeechTokenizer) -> SpeechTokenizer:
    """The same weights, of an encoder that knows only whole frames."""
    config = dataclasses.replace(lively_tokenizer.config, encodes_whole_frames=True)
    tokenizer = SpeechTokenizer(config).double().eval()
    tokenizer.load_state_dict(lively_tokenizer.state_dict())
    return tokenizer
