# Shape letters: B batch, T mel frame, M mel band, S sample, D embedding width.
"""An independent ear for speakers: it had no part in making the takes, unlike the model's own speaker encoder.

The network is GE2E (https://arxiv.org/abs/1710.10467) as Resemblyzer publishes it. Its weights come with that
package, which is optional: without it the scores by the model's own encoder remain, marked as biased.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.audio_utils import mel_filter_bank

VERIFIER_SAMPLE_RATE = 16_000
_FFT_SAMPLES, _HOP_SAMPLES, _MEL_BANDS, _WIDTH, _LAYERS = 400, 160, 40, 256, 3
# Resemblyzer's own: utterances are cut into windows of 1.6 s that overlap by half, at this loudness.
_WINDOW_FRAMES, _STEP_FRAMES = 160, 77
_TARGET_DBFS = -30.0


class SpeakerVerifier(Protocol):
    """Whatever turns speech into a vector that tells speakers apart by its direction."""

    name: str

    def embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """A vector for mono speech at `VERIFIER_SAMPLE_RATE`."""
        ...


class _Encoder(nn.Module):
    """Attribute names are those of the published weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(_MEL_BANDS, _WIDTH, _LAYERS, batch_first=True)
        self.linear = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, mels_BTM: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels_BTM)
        return nn.functional.normalize(torch.relu(self.linear(hidden[-1])), dim=1)


class PublishedVerifier:
    """Resemblyzer's encoder, read from the weights in its package."""

    name = "GE2E (Resemblyzer)"

    def __init__(self, weights: Path) -> None:
        state = torch.load(weights, map_location="cpu", weights_only=True)["model_state"]
        self._encoder = _Encoder()
        own = self._encoder.state_dict().keys()
        self._encoder.load_state_dict({name: tensor for name, tensor in state.items() if name in own})
        self._encoder.eval()
        filters = mel_filter_bank(
            num_frequency_bins=_FFT_SAMPLES // 2 + 1,
            num_mel_filters=_MEL_BANDS,
            min_frequency=0.0,
            max_frequency=VERIFIER_SAMPLE_RATE / 2,
            sampling_rate=VERIFIER_SAMPLE_RATE,
            norm="slaney",
            mel_scale="slaney",
        )
        self._filters = torch.from_numpy(filters).float()

    @torch.inference_mode()
    def embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The mean direction over windows of the speech."""
        mels_TM = self._mels(torch.from_numpy(_at_loudness(samples)))
        if len(mels_TM) < _WINDOW_FRAMES:
            mels_TM = nn.functional.pad(mels_TM, (0, 0, 0, _WINDOW_FRAMES - len(mels_TM)))
        windows_BTM = mels_TM.unfold(0, _WINDOW_FRAMES, _STEP_FRAMES).transpose(1, 2)
        mean = self._encoder(windows_BTM).mean(dim=0)
        embedding: NDArray[np.float32] = nn.functional.normalize(mean, dim=0).numpy()
        return embedding

    def _mels(self, samples_S: Tensor) -> Tensor:
        spectrum = torch.stft(
            samples_S,
            _FFT_SAMPLES,
            _HOP_SAMPLES,
            window=torch.hann_window(_FFT_SAMPLES),
            pad_mode="constant",
            return_complex=True,
        )
        return spectrum.abs().square().T @ self._filters


def find_verifier() -> SpeakerVerifier | None:
    """The verifier whose weights are on this machine; None where there are none."""
    # Found without importing the package, whose import needs more than its weights do.
    spec = importlib.util.find_spec("resemblyzer")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (weights := Path(folder, "pretrained.pt")).is_file():
            return PublishedVerifier(weights)
    return None


def _at_loudness(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Quiet speech raised to the loudness the network was trained at; loud speech stays."""
    level = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if samples.size else 0.0
    if level == 0.0:
        return np.zeros(max(samples.size, _FFT_SAMPLES), np.float32)
    gain = max(1.0, 10 ** (_TARGET_DBFS / 20) / level)
    raised = np.asarray(samples * gain, dtype=np.float32)
    return np.pad(raised, (0, max(0, _FFT_SAMPLES - raised.size)))
