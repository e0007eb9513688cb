"""The checkpoints of a fine-tuned voice: linked where the file system allows it, copied otherwise."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from backend.voices.errors import VoiceError
from backend.voices.voice import VARIANT_FOLDERS, Variant
from training.model.checkpoint.reading import read_config
from training.model.config import ModelConfig

# Exports may hold reports and logs beside the checkpoint; only what a model is loaded from becomes part of a voice.
CHECKPOINT_SUFFIXES = frozenset({".json", ".txt", ".safetensors", ".jinja"})


def copy_variants(checkpoints: Mapping[Variant, Path], folder: Path) -> None:
    """Bring checkpoint folders into a voice's folder.

    Raises:
        VoiceError: a variant is not of the kind it should be.
        ModelError: a folder is no checkpoint.
    """
    for variant, source in checkpoints.items():
        if variant not in VARIANT_FOLDERS:
            raise VoiceError(f"There is no variant {variant!r} of a voice; there are {', '.join(VARIANT_FOLDERS)}.")
        check_variant(variant, read_config(source))
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.suffix in CHECKPOINT_SUFFIXES:
                _link_or_copy(path, folder / variant / path.relative_to(source))


def check_variant(variant: Variant, config: ModelConfig) -> None:
    """Refuse a checkpoint that cannot do what its place in a voice promises. Raises VoiceError."""
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
