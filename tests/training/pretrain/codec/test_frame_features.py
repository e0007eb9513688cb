"""What codes are made of: pitch is found, nothing looks ahead, and the code space keeps what it is given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.pretrain.codec.code_space import CodeSpace
from training.pretrain.codec.frame_features import CONTENT_WIDTH, SOUND_WIDTH, Features, FrameFeatures

RATE_HZ = 16_000
MEASURE = FrameFeatures(RATE_HZ)


def voice(pitch_hz: float, num_samples: int = 12_800) -> torch.Tensor:
    """Twenty harmonics that fall off like a voice's."""
    seconds = torch.arange(num_samples) / RATE_HZ
    return 0.1 * sum(torch.sin(2 * np.pi * pitch_hz * k * seconds + k * k) / k for k in range(1, 20))


@given(pitch_hz=st.floats(80, 380))
def test_the_pitch_of_a_voice_is_found(pitch_hz: float):
    sound = MEASURE(voice(pitch_hz)).sound[1:]
    octaves = sound[:, 160::2] / 15.0
    assert torch.all((150 * 2**octaves / pitch_hz - 1).abs() < 0.03)


def test_noise_has_no_pitch():
    noise = 0.1 * torch.randn(12_800, generator=torch.Generator().manual_seed(0))
    assert torch.count_nonzero(MEASURE(noise).sound[:, 160:]) == 0


@pytest.mark.parametrize("num_samples", [1280, 1281, 5000])
def test_every_frame_is_measured(num_samples: int):
    features = MEASURE(voice(120, num_samples))
    num_frames = -(-num_samples // 1280)
    assert features.content.shape == (num_frames, CONTENT_WIDTH)
    assert features.sound.shape == (num_frames, SOUND_WIDTH)


def test_sound_does_not_depend_on_what_comes_after():
    """The encoder that imitates it hears nothing ahead."""
    first = voice(120)
    features = MEASURE(first).sound
    longer = MEASURE(torch.cat((first, voice(200)))).sound
    torch.testing.assert_close(longer[: len(features)], features)


def test_a_code_space_comes_back_from_its_file_and_keeps_what_is_told_apart(tmp_path):
    spoken = [MEASURE(voice(pitch)) for pitch in (90, 120, 150, 190, 230, 300)]
    features = Features(torch.cat([f.content for f in spoken]), torch.cat([f.sound for f in spoken]))
    space = CodeSpace.fit(features, num_codebooks=4, codebook_size=8, width=6, seed=1)
    space.save(tmp_path / "space.safetensors")
    loaded = CodeSpace(4, 8, 6)
    loaded.load(tmp_path / "space.safetensors")
    codes = [space.encode(f) for f in spoken]
    assert all(torch.equal(loaded.encode(f), found) for f, found in zip(spoken, codes, strict=True))
    assert codes[0].shape == (10, 4)
    assert int(codes[0].max()) < 8
    # Different voices have different codes.
    assert not torch.equal(codes[0][5], codes[5][5])
