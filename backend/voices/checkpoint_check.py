"""Checks that an imported checkpoint is what its configuration says, from the headers of its files alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from backend.voices.errors import VoiceFileInvalid
from backend.voices.variants import check_variant
from backend.voices.voice import Variant
from training.model.checkpoint.names import COMPONENTS, SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, read_config, read_speech_tokenizer_config
from training.model.checkpoint.stored_tensors import compare_tensors, locate_tensors, open_safetensors
from training.model.config import ModelConfig, SpeechTokenizerConfig
from training.model.prompt.text_tokenizer import TextTokenizer
from training.model.voice_model import build_networks

# Would have the tokenizer read other files than the voice's, or run code that comes with it.
_REFUSED_TOKENIZER_FIELDS = frozenset({"auto_map", "tokenizer_file", "vocab_file", "merges_file"})


def check_checkpoint(folder: Path, variant: Variant, base: Path | None = None) -> None:
    """Refuse a checkpoint whose parts do not belong together; no weight is read.

    Args:
        folder: the checkpoint.
        variant: what it should be.
        base: the model it says it was trained from, where that is on this computer.

    Raises:
        VoiceFileInvalid: a tokenizer that would read other files, or numbers that are not those of its base.
        VoiceError: it is not the kind of checkpoint that was expected there.
        ModelError: numbers that no model has; tensors are missing, unknown, or of other shapes or types than the
            configuration says.
    """
    config, tokenizer_config = read_config(folder), read_speech_tokenizer_config(folder)
    check_variant(variant, config)
    if base is not None:
        _compare_with_base(config, tokenizer_config, base)
    _check_text_tokenizer(folder, config)
    talker, speaker_encoder, speech_tokenizer = build_networks(config, tokenizer_config)
    own_files = find_weights(folder)
    _check_tensors(talker, own_files, "talker")
    if speaker_encoder is not None:
        _check_tensors(speaker_encoder, own_files, "speaker_encoder")
    _check_tensors(speech_tokenizer, find_weights(folder / SPEECH_TOKENIZER_FOLDER), "speech_tokenizer")


def _compare_with_base(config: ModelConfig, tokenizer_config: SpeechTokenizerConfig, base: Path) -> None:
    """A fine-tune adds a speaker and changes the kind of the checkpoint; all other numbers are its base's."""
    original = read_config(base)
    changed: dict[str, Any] = {
        "tts_model_type": original.tts_model_type,
        "tts_model_size": original.tts_model_size,
        "talker": replace(config.talker, spk_id=original.talker.spk_id, spk_is_dialect=original.talker.spk_is_dialect),
    }
    if not config.has_speaker_encoder:
        changed["speaker_encoder"] = original.speaker_encoder
    differences = [
        *_differences(replace(config, **changed), original, "config.json"),
        *_differences(tokenizer_config, read_speech_tokenizer_config(base), "speech_tokenizer/config.json"),
    ]
    if differences:
        raise VoiceFileInvalid(
            f"The voice's checkpoint is not that of its base model: {differences[0]}. It was changed, or trained from "
            "another version of the model. It was not imported."
        )


def _differences(found: Any, expected: Any, where: str) -> Iterator[str]:
    for spec in fields(expected):
        ours, theirs = getattr(found, spec.name), getattr(expected, spec.name)
        if is_dataclass(theirs):
            yield from _differences(ours, theirs, f"{where}, {spec.name}")
        elif spec.compare and ours != theirs:
            yield f"{where}, {spec.name} is {str(ours)[:60]!r} instead of {str(theirs)[:60]!r}"


def _check_tensors(network: nn.Module, files: list[Path], name: str) -> None:
    component = COMPONENTS[name]
    neighbours = [other for other in COMPONENTS.values() if other.folder == component.folder]
    with ExitStack() as stack:
        open_files = [(path, stack.enter_context(open_safetensors(path))) for path in files]
        stored, strays = locate_tensors(open_files, component, neighbours)
        mismatch = compare_tensors(stored, network.state_dict(keep_vars=True), component.prefix)
        mismatch.unknown += strays
        mismatch.raise_if_any(files[0])


def _check_text_tokenizer(folder: Path, config: ModelConfig) -> None:
    path = folder / "tokenizer_config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise VoiceFileInvalid("The voice's tokenizer_config.json is not JSON. It was not imported.") from error
    if not isinstance(fields, dict) or _REFUSED_TOKENIZER_FIELDS & fields.keys():
        raise VoiceFileInvalid("The voice's text tokenizer refers to files outside the voice. It was not imported.")
    if len(TextTokenizer.from_folder(folder)) > config.talker.text_vocab_size:
        raise VoiceFileInvalid("The voice's text tokenizer belongs to another model. It was not imported.")
