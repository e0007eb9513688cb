"""The catalogue of Whisper models agrees with what openai-whisper publishes."""

from __future__ import annotations

import pytest
import torch
import whisper
from whisper.model import AudioEncoder, TextDecoder

from backend.doctor.checks import check_transcriber
from backend.settings import Settings
from backend.transcription.catalogue import PUBLISHED_WHISPERS, PublishedWhisper, published_names
from ui.tabs.dataset.tab import whisper_choices

# Mel bands, vocabulary, width, heads, encoder layers, decoder layers: what each checkpoint says of itself.
DIMENSIONS = {
    "tiny": (80, 51_865, 384, 6, 4, 4),
    "base": (80, 51_865, 512, 8, 6, 6),
    "small": (80, 51_865, 768, 12, 12, 12),
    "medium": (80, 51_865, 1_024, 16, 24, 24),
    "large-v3": (128, 51_866, 1_280, 20, 32, 32),
    "turbo": (128, 51_866, 1_280, 20, 32, 4),
}


@pytest.mark.parametrize("model", PUBLISHED_WHISPERS, ids=lambda model: model.name)
def test_sizes_are_those_of_the_published_files(model: PublishedWhisper):
    """Weights in half precision, and a few kilobytes around them."""
    mels, vocabulary, width, heads, encoder_layers, decoder_layers = DIMENSIONS[model.name]
    with torch.device("meta"):
        networks = (
            AudioEncoder(mels, 1_500, width, heads, encoder_layers),
            TextDecoder(vocabulary, 448, width, heads, decoder_layers),
        )
    weights = 2 * sum(tensor.numel() for network in networks for tensor in network.state_dict().values())
    assert weights < model.num_bytes < 1.001 * weights


def test_files_are_called_as_openai_whisper_calls_them():
    for model in PUBLISHED_WHISPERS:
        assert whisper._MODELS[model.name].endswith(f"/{model.file_name}")
    assert published_names() == "tiny, base, small, medium, large-v3 or turbo"
    assert len({model.preference for model in PUBLISHED_WHISPERS}) == len(PUBLISHED_WHISPERS)


def test_the_size_of_base_is_the_same_everywhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (label,) = (label for label, value in whisper_choices() if value == "base")
    assert "(145 MB)" in label
    assert "(145 MB)" in check_transcriber(Settings(home=tmp_path)).remedy
