"""The checkpoints of a fine-tuned voice: linked where the file system allows it, copied otherwise."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from backend.voices.errors import VoiceError
from backend.voices.voice import VARIANT_FOLDERS, Variant
from training.model.checkpoint.reading import CONFIG_FILE, read_config
from training.model.config import ModelConfig

# Exports may hold reports and logs beside the checkpoint; only what a model is loaded from becomes part of a voice.
_CHECKPOINT_FILE = re.compile(
    r"(speech_tokenizer/)?(model(-\d{5}-of-\d{5})?\.safetensors|merges\.txt|(model\.safetensors\.index|config"
    r"|configuration|generation_config|preprocessor_config|vocab|tokenizer_config|tokenizer|special_tokens_map"
    r"|added_tokens)\.json)"
)


def is_checkpoint_file(relative: str) -> bool:
    """Whether a model is loaded from this file, given its path in a checkpoint folder."""
    return _CHECKPOINT_FILE.fullmatch(relative) is not None


def copy_variants(checkpoints: Mapping[Variant, Path], folder: Path, speaker: str | None = None) -> None:
    """Link or copy checkpoint folders into a voice's folder.

    Args:
        checkpoints: folders in the public format.
        folder: of the voice.
        speaker: who of a checkpoint's speakers the voice is: the copy knows only that name, and shares the weights.

    Raises:
        VoiceError: a variant is not the kind of checkpoint it should be, or does not have that speaker.
        ModelError: a folder is not a checkpoint.
    """
    for variant, source in checkpoints.items():
        if variant not in VARIANT_FOLDERS:
            raise VoiceError(f"There is no variant {variant!r} of a voice; there are {', '.join(VARIANT_FOLDERS)}.")
        config = read_config(source)
        alone = _with_one_speaker(config, speaker) if variant == "custom_voice" and speaker is not None else config
        check_variant(variant, alone)
        for path in sorted(source.rglob("*")):
            relative = path.relative_to(source)
            if path.is_file() and is_checkpoint_file(relative.as_posix()):
                _link_or_copy(path, folder / variant / relative)
        if alone != config:
            _write_config(source, folder / variant, alone)


def _with_one_speaker(config: ModelConfig, speaker: str) -> ModelConfig:
    talker = config.talker
    if speaker not in talker.spk_id:
        raise VoiceError(f"The checkpoint has no speaker {speaker[:40]!r}. Export the run again.")
    only = {speaker: talker.spk_id[speaker]}
    dialect = {name: value for name, value in talker.spk_is_dialect.items() if name in only}
    return replace(config, talker=replace(talker, spk_id=only, spk_is_dialect=dialect))


def _write_config(source: Path, folder: Path, config: ModelConfig) -> None:
    """Replace the link to a configuration; what else it says stays as it is."""
    fields = json.loads((source / CONFIG_FILE).read_text(encoding="utf-8"))
    talker = config.talker
    fields["talker_config"] |= {"spk_id": dict(talker.spk_id), "spk_is_dialect": dict(talker.spk_is_dialect)}
    (folder / CONFIG_FILE).unlink()
    (folder / CONFIG_FILE).write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_variant(variant: Variant, config: ModelConfig) -> None:
    """Refuse a checkpoint that is not of the kind its place in a voice requires. Raises VoiceError."""
    if config.tts_model_type != variant:
        raise VoiceError(
            f"A voice's {variant} checkpoint says of itself that it is a {config.tts_model_type[:40]} one. "
            "Export the run again."
        )
    if variant == "custom_voice" and len(config.talker.spk_id) != 1:
        raise VoiceError(
            f"A fine-tuned voice's checkpoint has one speaker; this one has {len(config.talker.spk_id)}. "
            "Export the run again."
        )


def _link_or_copy(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), destination)
    except OSError:
        # Another file system, or one without links.
        shutil.copy2(source, destination)
