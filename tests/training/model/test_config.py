from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from tests.golden import CONTRACT, GOLDEN_CHECKPOINT
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.errors import ConfigError
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.network.talker import Talker


def read(path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("size", ["0.6b-base", "1.7b-base"])
def test_published_shapes_are_built_tensor_for_tensor(size):
    contract = read(CONTRACT / f"{size}.json")
    config = ModelConfig.from_json(contract["config"])
    with torch.device("meta"):
        model = nn.ModuleDict(
            {
                "talker": Talker(config.talker, config.code_predictor),
                "speaker_encoder": SpeakerEncoder(config.speaker_encoder),
            }
        )
    assert {name: list(tensor.shape) for name, tensor in model.state_dict().items()} == contract["tensors"]
    assert sum(parameter.numel() for parameter in model.parameters()) == contract["parameters"]


def test_published_speech_tokenizer_is_built_tensor_for_tensor():
    contract = read(CONTRACT / "speech-tokenizer-12hz.json")
    with torch.device("meta"):
        tokenizer = SpeechTokenizer(SpeechTokenizerConfig.from_json(contract["config"]))
    assert {name: list(tensor.shape) for name, tensor in tokenizer.state_dict().items()} == contract["tensors"]
    assert sum(parameter.numel() for parameter in tokenizer.parameters()) == contract["parameters"]


def golden_config() -> dict[str, Any]:
    return read(GOLDEN_CHECKPOINT / "config.json")


def test_fields_of_other_programs_survive():
    raw = golden_config() | {"somebody_elses_field": [1, 2]}
    assert ModelConfig.from_json(raw).raw["somebody_elses_field"] == [1, 2]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda raw: raw.update(model_type="llama"), "model_type"),
        (lambda raw: raw.update(tokenizer_type="qwen3_tts_tokenizer_25hz"), "25hz"),
        (lambda raw: raw.pop("talker_config"), "talker_config"),
        (lambda raw: raw["talker_config"].pop("hidden_size"), "talker_config.hidden_size"),
        (lambda raw: raw["talker_config"].update(hidden_size="wide"), "talker_config.hidden_size"),
        (lambda raw: raw["talker_config"].update(num_hidden_layers=True), "num_hidden_layers"),
        (lambda raw: raw["talker_config"].update(rope_scaling={"rope_type": "yarn"}), "yarn"),
        (lambda raw: raw["talker_config"].update(use_sliding_window=True), "use_sliding_window"),
        (lambda raw: raw["talker_config"].update(rope_scaling="yarn"), "rope_scaling"),
        (lambda raw: raw["talker_config"].update(hidden_size=0), "hidden_size"),
        (lambda raw: raw["talker_config"].update(num_key_value_heads=0), "num_key_value_heads"),
        (lambda raw: raw["talker_config"].update(codec_language_id="english"), "codec_language_id"),
        (lambda raw: raw["speaker_encoder_config"].update(enc_channels=[32, -1]), "enc_channels"),
        (lambda raw: raw.update(tts_pad_token_id=True), "tts_pad_token_id"),
        (lambda raw: raw.update(tts_pad_token_id=10**6), "tts_pad_token_id"),
        (lambda raw: raw["talker_config"].update(codec_eos_token_id=5000), "codec_eos_token_id"),
        (lambda raw: raw["talker_config"]["codec_language_id"].update(english=5000), "english"),
        (lambda raw: raw["talker_config"].update(hidden_act="nope"), "nope"),
        (lambda raw: raw["talker_config"].update(num_key_value_heads=3), "heads"),
        (lambda raw: raw["talker_config"]["code_predictor_config"].update(num_code_groups=8), "codebooks"),
        (lambda raw: raw.update(tts_bos_token_id=None), "tts_bos_token_id"),
    ],
)
def test_a_bad_field_is_named(change, named):
    raw = golden_config()
    change(raw)
    with pytest.raises(ConfigError, match=named) as caught:
        ModelConfig.from_json(raw)
    assert "\n" not in str(caught.value)


def test_head_size_is_derived_where_the_file_leaves_it_out():
    raw = golden_config()
    del raw["talker_config"]["head_dim"]
    talker = ModelConfig.from_json(raw).talker
    assert talker.head_dim == talker.hidden_size // talker.num_attention_heads


def test_dialects_cannot_be_asked_for_as_languages():
    raw = golden_config()
    raw["talker_config"]["codec_language_id"]["sichuan_dialect"] = 80
    assert "sichuan_dialect" not in ModelConfig.from_json(raw).languages
