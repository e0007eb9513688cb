"""What fine-tuned voices are made of, as a run exports it, of the reference checkpoint's size."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.adapters import CONFIG, merged, random_adapter
from training.export import with_speaker
from training.model.checkpoint.adapter_folder import read_adapter
from training.model.checkpoint.digest import checkpoint_digest
from training.model.checkpoint.reading import read_config
from training.model.checkpoint.writing import PROVENANCE_FILE, save_adapter, save_checkpoint
from training.model.voice_model import VoiceModel

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


def adapter_of(folder: Path, *, seed: int = 0, size: float = 4.0, base: Path = GOLDEN_CHECKPOINT) -> Path:
    """An adapter's folder as a run exports it, with random matrices and one speaker."""
    config = read_config(base)
    talker = VoiceModel.load(base, precision="fp32", device="cpu").talker
    row = config.talker.vocab_size - 1
    speaker = torch.randn(config.talker.hidden_size, generator=torch.Generator().manual_seed(seed))
    digest = checkpoint_digest(base)
    save_adapter(
        folder,
        adapter=random_adapter(talker, seed=seed, size=size),
        config=CONFIG,
        rows={row: speaker},
        base_name=None,
        base_digest=digest,
        notes={PROVENANCE_FILE: {"speaker": SPEAKER, "speaker_row": row, "base_sha256": digest}},
    )
    return folder


def merged_of(adapter: Path, folder: Path, kind: Literal["custom_voice", "base"]) -> Path:
    """The reference checkpoint with an adapter merged into it, in float32."""
    stored, model = read_adapter(adapter), VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu")
    config = model.config
    talker = merged(model.talker, stored.weights, CONFIG)
    state = {f"talker.{name}": tensor for name, tensor in talker.state_dict().items()}
    if kind == "base":
        assert model.speaker_encoder is not None
        state |= {f"speaker_encoder.{name}": tensor for name, tensor in model.speaker_encoder.state_dict().items()}
    else:
        (row, speaker), *_ = stored.rows.items()
        state["talker.model.codec_embedding.weight"][row] = speaker
        config = with_speaker(config, SPEAKER, row)
    save_checkpoint(
        folder,
        config=config,
        state=state,
        speech_tokenizer=GOLDEN_CHECKPOINT / "speech_tokenizer",
        text_tokenizer=GOLDEN_CHECKPOINT,
        dtype=torch.float32,
    )
    return folder
