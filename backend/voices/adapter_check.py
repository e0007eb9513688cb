"""Checks that an imported adapter is one, and where its base model is on this computer that it can speak with it."""

from __future__ import annotations

from pathlib import Path

import torch

from backend.voices.trial import require_speech
from backend.voices.variants import check_adapter
from training.model.checkpoint.adapter_folder import read_adapter_header
from training.model.checkpoint.digest import checkpoint_digest
from training.model.checkpoint.reading import read_config
from training.model.network.lora import check_adapter_shapes
from training.model.network.talker import Talker


def check_imported_adapter(folder: Path, base: Path | None, language: str) -> None:
    """Refuse an adapter that is damaged or does not fit its base model.

    Args:
        folder: the adapter.
        base: the model that the voice says it was trained from, where that is on this computer. Without it, or where it
            is another version, the adapter is tried when it is loaded.
        language: of the voice.

    Raises:
        VoiceError: no voice can speak with it.
        ModelError: it is damaged, or of other sizes than its base.
    """
    check_adapter(folder)
    header = read_adapter_header(folder)
    if base is None or checkpoint_digest(base) != header.base_digest:
        return
    config = read_config(base)
    with torch.device("meta"):
        talker = Talker(config.talker, config.code_predictor)
    check_adapter_shapes(header.shapes, talker)
    require_speech(base, language, folder)
