"""Configurations that are written read back the same, with what other programs need."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import CONTRACT, GOLDEN_CHECKPOINT
from training.model.checkpoint.config_file import model_config_to_json, speech_tokenizer_config_to_json
from training.model.checkpoint.reading import read_config, read_speech_tokenizer_config
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.config_ranges import RANGES

MODEL = read_config(GOLDEN_CHECKPOINT)
CODEC = read_speech_tokenizer_config(GOLDEN_CHECKPOINT)


def numbers_of(config: Any) -> list[str]:
    return [spec.name for spec in dataclasses.fields(config) if type(getattr(config, spec.name)) in (int, float)]


# Numbers that have to agree with one another.
BOUND_TOGETHER = {"num_key_value_heads", "num_attention_heads", "num_code_groups", "enc_res2net_scale"}


def values_of(name: str) -> st.SearchStrategy[float]:
    """Ids have to lie in their tables, and tables have to hold the ids."""
    if name.startswith("codec_"):
        return st.integers(1, MODEL.talker.vocab_size - 1)
    lowest, highest = RANGES[name]
    if isinstance(lowest, float):
        return st.floats(lowest, highest)
    if name == "head_dim":
        return st.integers(1, 100).map(lambda half: 2 * half)
    return st.integers(MODEL.talker.vocab_size if name.endswith("vocab_size") else lowest, highest)


def changed_section(data: st.DataObject, config: Any) -> Any:
    names = sorted(set(numbers_of(config)) - BOUND_TOGETHER)
    changes = {name: data.draw(values_of(name)) for name in data.draw(st.sets(st.sampled_from(names)))}
    return dataclasses.replace(config, **changes)


@given(st.data(), st.booleans())
def test_whatever_changes_in_a_model_is_written(data: st.DataObject, from_file: bool) -> None:
    config = dataclasses.replace(MODEL, raw=MODEL.raw if from_file else {})
    section = data.draw(st.sampled_from(["talker", "code_predictor", "speaker_encoder"]))
    changed = dataclasses.replace(config, **{section: changed_section(data, getattr(config, section))})

    assert ModelConfig.from_json(model_config_to_json(changed, torch.bfloat16)) == changed


@given(st.data(), st.booleans())
def test_whatever_changes_in_a_speech_tokenizer_is_written(data: st.DataObject, from_file: bool) -> None:
    config = dataclasses.replace(CODEC, raw=CODEC.raw if from_file else {})
    section = data.draw(st.sampled_from(["encoder", "decoder"]))
    changed = dataclasses.replace(config, **{section: changed_section(data, getattr(config, section))})

    assert SpeechTokenizerConfig.from_json(speech_tokenizer_config_to_json(changed)) == changed


def test_what_others_wrote_survives_and_only_changes_are_written() -> None:
    talker = dataclasses.replace(MODEL.talker, spk_id={"anna": 1024}, spk_is_dialect={"anna": False})
    changed = dataclasses.replace(MODEL, talker=talker, tts_model_type="custom_voice")

    written = model_config_to_json(changed, torch.float32)

    expected = dict(MODEL.raw) | {"tts_model_type": "custom_voice"}
    expected["talker_config"] = MODEL.raw["talker_config"] | {
        "spk_id": {"anna": 1024},
        "spk_is_dialect": {"anna": False},
    }
    assert written == expected
    assert MODEL.raw["talker_config"]["spk_id"] == {}


@pytest.mark.parametrize("size", ["0.6b-base", "1.7b-base"])
def test_a_published_config_gains_nothing_but_the_dtype(size: str) -> None:
    published = json.loads((CONTRACT / f"{size}.json").read_text())["config"]
    written = model_config_to_json(ModelConfig.from_json(published), torch.bfloat16)
    assert written == published | {"dtype": "bfloat16"}


def test_a_size_the_file_left_out_is_written_when_it_no_longer_follows() -> None:
    talker_raw = {name: value for name, value in MODEL.raw["talker_config"].items() if name != "head_dim"}
    talker_raw["hidden_size"] = 64
    config = ModelConfig.from_json({**MODEL.raw, "talker_config": talker_raw})
    assert config.talker.head_dim == 16

    changed = dataclasses.replace(config, talker=dataclasses.replace(config.talker, hidden_size=128))

    assert ModelConfig.from_json(model_config_to_json(changed, torch.float32)).talker.head_dim == 16


@pytest.mark.parametrize(("head_dim", "sections"), [(128, [24, 20, 20]), (16, [4, 2, 2]), (64, [12, 10, 10])])
def test_a_new_model_divides_its_rotary_axes_as_the_published_ones(head_dim: int, sections: list[int]) -> None:
    talker = dataclasses.replace(MODEL.talker, head_dim=head_dim)
    written = model_config_to_json(dataclasses.replace(MODEL, talker=talker, raw={}), torch.float32)
    assert written["talker_config"]["rope_scaling"]["mrope_section"] == sections
    assert written["dtype"] == "float32"
