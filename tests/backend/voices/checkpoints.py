"""A fine-tuned voice's checkpoint as a run exports it, of the reference checkpoint's size."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from tests.golden import GOLDEN_CHECKPOINT

SPEAKER = "anna"


def fine_tuned_checkpoint(folder: Path, *, scale: float = 1.0) -> Path:
    """The reference checkpoint as a `custom_voice` one with one speaker; `scale` makes its head another one."""
    shutil.copytree(GOLDEN_CHECKPOINT, folder, ignore=shutil.ignore_patterns("expected.*"))
    config = json.loads((folder / "config.json").read_text())
    config["tts_model_type"] = "custom_voice"
    talker = config["talker_config"]
    # The last ids are tags and speakers.
    talker["spk_id"] = {SPEAKER: talker["vocab_size"] - 1}
    (folder / "config.json").write_text(json.dumps(config))
    with safe_open(folder / "model.safetensors", framework="pt") as weights:
        names = [name for name in weights.keys() if not name.startswith("speaker_encoder.")]  # noqa: SIM118
        state = {name: weights.get_tensor(name) for name in names}
    state["talker.codec_head.weight"] = state["talker.codec_head.weight"] * scale
    save_file(state, folder / "model.safetensors")
    return folder
