import numpy as np
import pytest
import torch

from tests.benchmarks.pitch import measure, pitch_track, table

RATE_HZ = 16_000


def tone(pitch_hz: float) -> np.ndarray:
    place = 2 * np.pi * pitch_hz * np.arange(RATE_HZ) / RATE_HZ
    return (0.1 * sum(np.sin(k * place) / k for k in range(1, 8))).astype(np.float32)


class Codec:
    """Keeps or loses what it is given."""

    class config:  # noqa: N801 - as the speech tokenizer has it
        input_sample_rate = output_sample_rate = RATE_HZ

    def __init__(self, keeps: bool) -> None:
        self._keeps = keeps

    def encode(self, sounds: list[torch.Tensor]) -> list[torch.Tensor]:
        return sounds

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        return codes if self._keeps else torch.randn(codes.shape, generator=torch.Generator().manual_seed(0)) / 10


@pytest.mark.parametrize("pitch_hz", [70, 90, 140, 250])
def test_pitch_is_tracked(pitch_hz: float):
    pitch = pitch_track(tone(pitch_hz))
    np.testing.assert_allclose(pitch, pitch_hz, rtol=0.02)


def test_silence_noise_and_a_blink_have_no_pitch():
    noise = np.random.default_rng(0).normal(scale=0.1, size=RATE_HZ).astype(np.float32)
    assert not pitch_track(np.zeros(RATE_HZ, np.float32)).any()
    assert (pitch_track(noise) > 0).mean() < 0.05
    assert len(pitch_track(noise[:100])) == 0


def test_a_codec_that_keeps_pitch_is_told_from_one_that_whispers():
    speech = [tone(80), tone(200)]
    kept, lost = (measure(Codec(keeps), speech) for keeps in (True, False))  # type: ignore[arg-type]
    assert set(kept) == {(78, 85), (150, 220)}
    assert all(one.voiced == one.kept == 1 for one in kept.values())
    assert all(one.voiced < 0.1 for one in lost.values())
    assert table(kept)[2] == f"| 78 to 85 Hz | {kept[78, 85].num_windows} | 100% | 100% |"
