"""Every number of every configuration of a voice's checkpoint: refused in one line, or it can be spoken with."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.errors import EncoreError
from backend.voices import trial
from backend.voices.checkpoint_check import check_checkpoint
from backend.voices.errors import VoiceFileInvalid
from backend.voices.trial import require_speech, try_to_speak
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import CONTRACT, GOLDEN_CHECKPOINT
from training.model.checkpoint.reading import read_config, read_speech_tokenizer_config
from training.model.config import (
    CodecDecoderConfig,
    CodecEncoderConfig,
    CodePredictorConfig,
    ModelConfig,
    SpeakerEncoderConfig,
    SpeechTokenizerConfig,
    TalkerConfig,
)
from training.model.config_ranges import RANGES
from training.model.voice_model import VoiceModel, build_networks

CONFIGURATIONS = ("config.json", "speech_tokenizer/config.json", "generation_config.json", "tokenizer_config.json")
HOSTILE = (0, -1, 100_000, 2**63, 1e308, math.nan, "1", None)
MAX_CHARACTERS = 1000
MAX_SPOKEN = 4
"""Of the changes that are within the ranges, drawn at random: loading takes a second."""


@pytest.fixture(scope="module", params=["custom_voice", "base"])
def checkpoint(request, tmp_path_factory):
    """The reference checkpoint as each of a voice's two kinds."""
    folder = tmp_path_factory.mktemp("checkpoint") / request.param
    if request.param == "base":
        return shutil.copytree(GOLDEN_CHECKPOINT, folder, ignore=shutil.ignore_patterns("expected.*"))
    return fine_tuned_checkpoint(folder)


def numbers_in(content: Any, *before: str | int) -> Iterator[tuple[str | int, ...]]:
    """The place of every number, and of every table that names speakers, dialects and languages."""
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in entries:
        place = (*before, key)
        if isinstance(value, dict | list):
            yield from numbers_in(value, *place)
        elif type(value) in (int, float) or before[-1:] == ("spk_is_dialect",):
            yield place


def replaced(content: Any, place: tuple[str | int, ...], value: object) -> Any:
    changed = json.loads(json.dumps(content))
    target = changed
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    return changed


def meaning_of(folder: Path) -> object:
    """What is read of the configurations: most of their numbers are there for other programs."""
    texts = [(folder / name).read_text() for name in CONFIGURATIONS[2:]]
    return read_config(folder), read_speech_tokenizer_config(folder), *texts


def is_sentence(error: EncoreError) -> bool:
    return "\n" not in str(error) and len(str(error)) < MAX_CHARACTERS


def refused_or_speaks(folder: Path) -> bool:
    """True unless it is refused in more than a line; whatever else than one of the project's errors fails the test."""
    try:
        check_checkpoint(folder, folder.name)
        try_to_speak(folder, "auto")
    except EncoreError as error:
        return is_sentence(error)
    return True


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_number_is_refused_or_can_be_spoken_with(checkpoint, name):
    path = checkpoint / name
    original = path.read_text()
    content = json.loads(original)
    if name == "config.json" and content["talker_config"]["spk_id"]:
        content["talker_config"]["spk_is_dialect"] = dict.fromkeys(content["talker_config"]["spk_id"], False)
    accepted, sentences = [], []
    try:
        path.write_text(json.dumps(content))
        untouched = meaning_of(checkpoint)
        for place in numbers_in(content):
            for value in HOSTILE:
                path.write_text(json.dumps(replaced(content, place, value)))
                try:
                    meaning = meaning_of(checkpoint)
                except EncoreError as error:
                    sentences.append(is_sentence(error))
                else:
                    if meaning != untouched:
                        accepted.append(path.read_text())
        for text in random.Random(name).sample(accepted, min(MAX_SPOKEN, len(accepted))):
            path.write_text(text)
            assert refused_or_speaks(checkpoint)
    finally:
        path.write_text(original)
    assert all(sentences)


@pytest.mark.parametrize(
    ("name", "place", "value", "match"),
    [
        ("speech_tokenizer/config.json", ("decoder_config", "sliding_window"), 100_000, "sliding_window"),
        ("speech_tokenizer/config.json", ("decoder_config", "rms_norm_eps"), 1e5, "rms_norm_eps"),
        ("config.json", ("talker_config", "rms_norm_eps"), -1, "rms_norm_eps"),
        ("config.json", ("talker_config", "rope_theta"), 0, "rope_theta"),
        ("config.json", ("talker_config", "code_predictor_config", "rope_theta"), -5, "rope_theta"),
        ("config.json", ("talker_config", "head_dim"), 2**63, "head_dim"),
        ("config.json", ("talker_config", "spk_is_dialect"), {"anna": "martian"}, "dialect"),
        ("config.json", ("talker_config", "spk_is_dialect"), {"anna": 10**6}, "dialect"),
        ("config.json", ("talker_config", "vocab_size"), 1024, "codes|codec"),
        ("generation_config.json", ("temperature",), 1e5, "temperature"),
        ("generation_config.json", ("max_new_tokens",), math.inf, "max_new_tokens"),
        ("generation_config.json", ("max_new_tokens",), 2**63, "max_new_tokens"),
        ("generation_config.json", ("max_reference_seconds",), 0.01, "max_reference_seconds"),
        ("generation_config.json", ("max_reference_seconds",), math.nan, "max_reference_seconds"),
        ("generation_config.json", ("speech_guidance_scale",), 1e6, "speech_guidance_scale"),
        ("generation_config.json", ("speech_guidance_scale",), math.nan, "speech_guidance_scale"),
        ("generation_config.json", ("speech_guidance_scale",), "much", "speech_guidance_scale"),
    ],
)
def test_what_let_a_voice_file_decide_about_memory_or_speak_noise(tmp_path, name, place, value, match):
    folder = fine_tuned_checkpoint(tmp_path / "custom_voice")
    path = folder / name
    path.write_text(json.dumps(replaced(json.loads(path.read_text()), place, value)))
    with pytest.raises(EncoreError, match=match):
        VoiceModel.load(folder, device="cpu")


def test_every_number_of_every_configuration_has_a_range():
    for kind in (TalkerConfig, CodePredictorConfig, SpeakerEncoderConfig, CodecEncoderConfig, CodecDecoderConfig):
        for spec in dataclasses.fields(kind):
            if spec.type in ("int", "float", "tuple[int, ...]") and not spec.name.endswith("_id"):
                assert spec.name in RANGES


@pytest.mark.parametrize("size", ["0.6b-base", "1.7b-base"])
def test_the_published_models_are_within_the_ranges(size):
    contract = json.loads((CONTRACT / f"{size}.json").read_text())["config"]
    codec = json.loads((CONTRACT / "speech-tokenizer-12hz.json").read_text())["config"]
    build_networks(ModelConfig.from_json(contract), SpeechTokenizerConfig.from_json(codec))


def test_a_fine_tune_has_the_numbers_of_its_base(tmp_path):
    folder = fine_tuned_checkpoint(tmp_path / "custom_voice")
    check_checkpoint(folder, "custom_voice", GOLDEN_CHECKPOINT)
    for name, place in (
        ("config.json", ("talker_config", "rope_theta")),
        ("config.json", ("talker_config", "code_predictor_config", "rms_norm_eps")),
        ("config.json", ("talker_config", "codec_language_id", "english")),
        ("speech_tokenizer/config.json", ("decoder_config", "sliding_window")),
    ):
        path = folder / name
        original = path.read_text()
        value = json.loads(original)
        for key in place:
            value = value[key]
        path.write_text(json.dumps(replaced(json.loads(original), place, value * 1.01 if value < 1 else value + 1)))
        with pytest.raises(VoiceFileInvalid, match=place[-1]):
            check_checkpoint(folder, "custom_voice", GOLDEN_CHECKPOINT)
        path.write_text(original)


def test_the_process_that_tries_says_in_one_line_what_is_wrong(tmp_path):
    folder = fine_tuned_checkpoint(tmp_path / "custom_voice")
    require_speech(folder, "english")
    with pytest.raises(VoiceFileInvalid, match="does not speak 'klingon'") as caught:
        require_speech(folder, "klingon")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_checkpoint_that_takes_more_memory_than_its_size_explains_is_refused(tmp_path, monkeypatch):
    folder = fine_tuned_checkpoint(tmp_path / "custom_voice")
    monkeypatch.setattr(trial, "_SPARE_BYTES", 1)
    monkeypatch.setattr(trial, "_COPIES_OF_WEIGHTS", 0)
    with pytest.raises(VoiceFileInvalid, match="cannot speak"):
        require_speech(folder, "auto")
