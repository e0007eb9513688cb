"""The checkpoints of a fine-tuned voice: linked where the file system allows it, copied otherwise."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from backend.voices.errors import VoiceError
from backend.voices.voice import VARIANT_FOLDERS, Variant
from training.model.checkpoint.reading import read_config
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


def copy_variants(checkpoints: Mapping[Variant, Path], folder: Path) -> None:
    """Link or copy checkpoint folders into a voice's folder.

    Raises:
        VoiceError: a variant is not the kind of checkpoint it should be.
        ModelError: a folder is not a checkpoint.
    """
    for variant, source in checkpoints.items():
        if variant not in VARIANT_FOLDERS:
            raise VoiceError(f"There is no variant {variant!r} of a voice; there are {', '.join(VARIANT_FOLDERS)}.")
        check_variant(variant, read_config(source))
        for path in sorted(source.rglob("*")):
            relative = path.relative_to(source)
            if path.is_file() and is_checkpoint_file(relative.as_posix()):
                _link_or_copy(path, folder / variant / relative)


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
