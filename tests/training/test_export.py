"""Exports hold what the reference package looks for: the base model's own files, tensors and configuration, no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job
from training.export import KINDS, PROVENANCE_FILE, FineTunedWeights, Kind, export_weights
from training.model.checkpoint.hashes import HASHES_FILE
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.voice_model import VoiceModel

WEIGHTS_FILE = "model.safetensors"


@pytest.fixture(scope="module", params=[GOLDEN_CHECKPOINT, EMBEDDED_FOLDER], ids=["reference", "embedded"])
def base(request: pytest.FixtureRequest) -> Path:
    """A base checkpoint that the reference package loads."""
    return Path(request.param)


@pytest.fixture(scope="module")
def exports(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    """Both exports of a run on it."""
    folder = tmp_path_factory.mktemp("exports")
    talker = VoiceModel.load(base, precision="fp32", device="cpu").talker
    weights = FineTunedWeights(
        job=make_job(folder, voice="Ann Marie", base_model=base),
        step=1,
        talker=talker.state_dict(),
        embeddings=torch.full((1, talker.config.hidden_size), 0.5),
    )
    for kind in KINDS:
        export_weights(weights, folder / kind, kind)
    return {kind: folder / kind for kind in KINDS}


def shapes_in(folder: Path) -> dict[str, list[int]]:
    shapes: dict[str, list[int]] = {}
    for file in find_weights(folder):
        with safe_open(file, "pt") as tensors:
            shapes |= {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118 - no mapping
    return shapes


def read_json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_the_base_models_by_name_and_shape(base: Path, exports: dict[Kind, Path], kind: Kind) -> None:
    expected = shapes_in(base)
    if kind == "custom_voice":
        expected = {name: shape for name, shape in expected.items() if not name.startswith("speaker_encoder.")}
    assert shapes_in(exports[kind]) == expected
    with safe_open(exports[kind] / WEIGHTS_FILE, "pt") as tensors:
        # transformers reads nothing without this entry.
        assert tensors.metadata()["format"] == "pt"


def test_only_what_a_named_speaker_needs_changes_in_the_configuration(base: Path, exports: dict[Kind, Path]) -> None:
    expected, custom = read_json(base / "config.json"), read_json(exports["custom_voice"] / "config.json")
    assert read_json(exports["base"] / "config.json") == expected | {"dtype": "bfloat16"}
    # The reference package looks speakers up in lower case, and asks of each whether it is a dialect.
    row = custom["talker_config"]["spk_id"]["ann marie"]
    before = expected["talker_config"]
    assert custom["talker_config"] == before | {
        "spk_id": {**before.get("spk_id", {}), "ann marie": row},
        "spk_is_dialect": {**before.get("spk_is_dialect", {}), "ann marie": False},
    }
    others = {"talker_config": before, "tts_model_type": expected["tts_model_type"], "dtype": expected["dtype"]}
    assert custom["tts_model_type"] == "custom_voice"
    assert custom | others == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_file_is_a_copy(base: Path, exports: dict[Kind, Path], kind: Kind) -> None:
    written = {str(path.relative_to(exports[kind])) for path in exports[kind].rglob("*") if path.is_file()}
    copies = written - {WEIGHTS_FILE, "config.json", PROVENANCE_FILE, HASHES_FILE}
    assert {"vocab.json", "merges.txt", "tokenizer_config.json", "generation_config.json"} < copies
    assert {f"{SPEECH_TOKENIZER_FOLDER}/{name}" for name in ("config.json", "preprocessor_config.json")} < copies
    for name in copies:
        assert (exports[kind] / name).read_bytes() == (base / name).read_bytes(), name


def test_weights_are_interpolated_between_base_and_tuned(tmp_path: Path) -> None:
    before = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker.state_dict()
    weights = FineTunedWeights(
        job=make_job(tmp_path, interpolation_alpha=0.25),
        step=1,
        talker={name: tensor + 1 for name, tensor in before.items()},
        embeddings=torch.zeros(1, 1),
    )
    export_weights(weights, tmp_path / "kept", "base")
    kept = VoiceModel.load(tmp_path / "kept", precision="fp32", device="cpu").talker.state_dict()
    for name, tensor in before.items():
        # Exports are bfloat16.
        torch.testing.assert_close(kept[name], tensor + 0.25, rtol=1e-2, atol=1e-3)


def test_changes_smaller_than_a_step_of_bfloat16_are_kept_on_average(tmp_path: Path) -> None:
    """Rounded to the nearest, the base model would be exported."""
    before = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker.state_dict()
    change = 2**-10
    weights = FineTunedWeights(
        job=make_job(tmp_path, interpolation_alpha=1.0),
        step=1,
        talker={name: tensor * (1 + change) for name, tensor in before.items()},
        embeddings=torch.zeros(1, 1),
    )
    export_weights(weights, tmp_path / "kept", "base")
    kept = VoiceModel.load(tmp_path / "kept", precision="fp32", device="cpu").talker.state_dict()
    changed, sizes = (sum(float(one.abs().sum()) for one in of.values()) for of in (kept, before))
    assert changed / sizes - 1 == pytest.approx(change, rel=0.1)
