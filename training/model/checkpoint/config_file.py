"""Writes configurations as the JSON of a checkpoint folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from training.model.config import CodecEncoderConfig, ModelConfig, SpeechTokenizerConfig, TalkerConfig
from training.model.errors import ConfigError

_Config = TypeVar("_Config", ModelConfig, SpeechTokenizerConfig)

_DTYPE_KEYS = ("dtype", "torch_dtype")
_MODEL_SECTIONS = ("talker", "code_predictor", "speaker_encoder")
_CODEC_SECTIONS = ("encoder", "decoder")


def model_config_to_json(config: ModelConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Make the `config.json` of a model whose weights are stored in `dtype`.

    The file that `config` was read from is updated with the changes, so that fields that only other programs read are
    kept. A config that was not read from a file is written in full.
    """
    before = _read_back(ModelConfig, config.raw)
    written = _write_model(config, before)
    if ModelConfig.from_json(written) != config:
        # A field that the file omitted, because it follows from others, may be needed now that those changed.
        written = _write_model(config, None)
    for section in (written, written["talker_config"], written["talker_config"]["code_predictor_config"]):
        _set_dtype(section, dtype, required=section is written)
    return written


def speech_tokenizer_config_to_json(config: SpeechTokenizerConfig) -> dict[str, Any]:
    """Make `speech_tokenizer/config.json`, updating the file that `config` was read from."""
    before = _read_back(SpeechTokenizerConfig, config.raw)
    written = _write_codec(config, before)
    if SpeechTokenizerConfig.from_json(written) != config:
        written = _write_codec(config, None)
    return written


def _read_back(kind: type[_Config], raw: Mapping[str, Any]) -> _Config | None:
    """Read the original file again, to see what changed; None without a file, or if it is of another model."""
    try:
        return kind.from_json(raw) if raw else None
    except ConfigError:
        return None


def _write_model(config: ModelConfig, before: ModelConfig | None) -> dict[str, Any]:
    raw = config.raw or {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
    }
    written = _overlay(raw, config, before, leave_out=_MODEL_SECTIONS)
    talker_raw = raw.get("talker_config") or _new_talker_section(config.talker)
    predictor_raw = talker_raw.get("code_predictor_config") or {"model_type": "qwen3_tts_talker_code_predictor"}
    written["talker_config"] = {
        **_overlay(talker_raw, config.talker, before and before.talker),
        "code_predictor_config": _overlay(predictor_raw, config.code_predictor, before and before.code_predictor),
    }
    if config.has_speaker_encoder or "speaker_encoder_config" in raw:
        written["speaker_encoder_config"] = _overlay(
            raw.get("speaker_encoder_config") or {}, config.speaker_encoder, before and before.speaker_encoder
        )
    return written


def _write_codec(config: SpeechTokenizerConfig, before: SpeechTokenizerConfig | None) -> dict[str, Any]:
    raw = config.raw or {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_config": _new_encoder_section(config.encoder, config.input_sample_rate),
    }
    written = _overlay(raw, config, before, leave_out=_CODEC_SECTIONS)
    for name in _CODEC_SECTIONS:
        section = raw.get(f"{name}_config") or {}
        written[f"{name}_config"] = _overlay(section, getattr(config, name), before and getattr(before, name))
    return written


def _overlay(raw: Mapping[str, Any], now: Any, before: Any, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Write the fields of the dataclass `now` that differ from `before` over a copy of `raw`."""
    written = dict(raw)
    for spec in dataclasses.fields(now):
        value = getattr(now, spec.name)
        if spec.name not in ("raw", *leave_out) and (before is None or getattr(before, spec.name) != value):
            written[spec.name] = _to_json(value)
    return written


def _to_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _set_dtype(section: dict[str, Any], dtype: torch.dtype, *, required: bool) -> None:
    """Set the dtype of the weights, under whichever of transformers' two keys the section already has."""
    name = str(dtype).removeprefix("torch.")
    present = [key for key in _DTYPE_KEYS if section.get(key) is not None]
    for key in present or (_DTYPE_KEYS[:1] if required else ()):
        section[key] = name


def _new_talker_section(talker: TalkerConfig) -> dict[str, Any]:
    """Add fields that the reference package requires: sections of the rotary axes, in the published proportions.

    They have no effect on speech, whose positions are equal along all three axes.
    """
    num_frequencies = talker.head_dim // 2
    side = num_frequencies * 20 // 64
    sections = [num_frequencies - 2 * side, side, side]
    return {
        "model_type": "qwen3_tts_talker",
        "rope_scaling": {"interleaved": True, "mrope_section": sections, "rope_type": "default"},
    }


def _new_encoder_section(encoder: CodecEncoderConfig, sample_rate: int) -> dict[str, Any]:
    """Add fields of transformers' Mimi whose defaults are the published codec's sizes."""
    return {"model_type": "mimi", "sampling_rate": sample_rate, "upsample_groups": encoder.hidden_size}
