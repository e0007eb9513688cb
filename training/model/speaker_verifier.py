# Shape letters: B batch, T mel frame, K frequency bin, M mel band, S sample, D embedding width.
"""A judge of who is heard: it knows people, and has no part in speaking.

Independent of all models but the embedded one, whose speaker encoder it has taught where voices lie.

The network is GE2E (https://arxiv.org/abs/1710.10467) as Resemblyzer publishes it; its weights are part of the program.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from training.model.network.mel import mel_filterbank
from training.model.project import PROJECT_FOLDER

_logger = logging.getLogger(__name__)

VERIFIER_SAMPLE_RATE = 16_000
VERIFIER_WEIGHTS = PROJECT_FOLDER / "assets" / "verifier" / "ge2e.safetensors"

_FFT_SAMPLES, _HOP_SAMPLES, _MEL_BANDS, _WIDTH, _LAYERS = 400, 160, 40, 256, 3
# Resemblyzer's own: utterances are cut into windows of 1.6 s that overlap by half, at this loudness.
_WINDOW_FRAMES, _STEP_FRAMES = 160, 77
_TARGET_DBFS = -30.0
# A window takes 1 MB on its way through the network: an hour at once would take 5 GB.
_WINDOWS_AT_ONCE = 256


class SpeakerVerifier(Protocol):
    """Turns speech into a vector that tells speakers apart by its direction."""

    @property
    def name(self) -> str:
        """Which it is; kept with the scores it gave."""
        ...

    def embed(self, samples: NDArray[np.float32], *, sample_rate: int = VERIFIER_SAMPLE_RATE) -> NDArray[np.float32]:
        """A vector (D,) of length 1 for mono speech (S,)."""
        ...


class GE2EVerifier:
    """Resemblyzer's encoder; knows no language, and may be used by several threads."""

    name = "GE2E (Resemblyzer)"

    def __init__(self, weights: Path = VERIFIER_WEIGHTS) -> None:
        """Load the weights (6 MB in memory)."""
        self._encoder = _Encoder()
        self._encoder.load_state_dict({name: tensor.float() for name, tensor in load_file(weights).items()})
        self._encoder.eval()
        self._filters_KM = mel_filterbank(VERIFIER_SAMPLE_RATE, _FFT_SAMPLES, _MEL_BANDS).T.contiguous()

    @torch.inference_mode()
    def embed(self, samples: NDArray[np.float32], *, sample_rate: int = VERIFIER_SAMPLE_RATE) -> NDArray[np.float32]:
        """The mean direction over windows of the speech (S,); zeros for silence."""
        if sample_rate != VERIFIER_SAMPLE_RATE:
            samples = soxr.resample(samples, sample_rate, VERIFIER_SAMPLE_RATE)
        mels_TM = self._mels(torch.from_numpy(_at_loudness(samples)))
        if len(mels_TM) < _WINDOW_FRAMES:
            mels_TM = nn.functional.pad(mels_TM, (0, 0, 0, _WINDOW_FRAMES - len(mels_TM)))
        windows_BTM = mels_TM.unfold(0, _WINDOW_FRAMES, _STEP_FRAMES).transpose(1, 2)
        directions_BD = torch.cat([self._encoder(part) for part in windows_BTM.split(_WINDOWS_AT_ONCE)])
        embedding: NDArray[np.float32] = nn.functional.normalize(directions_BD.mean(dim=0), dim=0).numpy()
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
        return spectrum.abs().square().T @ self._filters_KM


class _Encoder(nn.Module):
    """Attribute names are those of the published weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(_MEL_BANDS, _WIDTH, _LAYERS, batch_first=True)
        self.linear = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, mels_BTM: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels_BTM)
        return nn.functional.normalize(torch.relu(self.linear(hidden[-1])), dim=1)


@cache
def load_verifier() -> GE2EVerifier | None:
    """The verifier of this process, loaded when first asked for; None where its weights are missing or damaged."""
    try:
        return GE2EVerifier()
    except (OSError, SafetensorError, RuntimeError) as error:
        _logger.warning("speakers are compared by the model itself, because %s is no use: %s", VERIFIER_WEIGHTS, error)
        return None


def _at_loudness(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Quiet speech raised to the loudness the network was trained at; loud speech stays."""
    level = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if samples.size else 0.0
    if level == 0.0:
        return np.zeros(max(samples.size, _FFT_SAMPLES), np.float32)
    gain = max(1.0, 10 ** (_TARGET_DBFS / 20) / level)
    raised = np.asarray(samples * gain, dtype=np.float32)
    return np.pad(raised, (0, max(0, _FFT_SAMPLES - raised.size)))
