"""An adapter by itself: the files that PEFT writes, nothing of this machine in them, and the same voice as merged."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job, make_rows, write_dataset
from tests.training.strategy_worker import RecordingContext
from training.errors import TrainingError
from training.export import (
    EXPORTS_FOLDER,
    PROVENANCE_FILE,
    FineTunedWeights,
    export_adapter,
    export_all,
    read_weights,
    speaker_row,
)
from training.job import ADAPTER_FOLDER
from training.job_data import plan_data
from training.model.checkpoint.hashes import find_damage
from training.model.checkpoint.names import ADAPTER_FILE
from training.model.checkpoint.reading import read_config
from training.model.checkpoint.writing import ADAPTER_CONFIG_FILE, BASE_DIGEST_KEY
from training.model.errors import CheckpointError
from training.model.hub.hub import EMBEDDED_FOLDER, published_name
from training.model.network.talker import Talker
from training.model.voice_model import VoiceModel
from training.run_checkpoints import list_checkpoints
from training.worker import run_worker

LAYERS = ("attention", "mlp", "code-predictor")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with an adapter, and what it exported."""
    folder = tmp_path_factory.mktemp("adapter")
    write_dataset(folder / "dataset", make_rows((9, 16, 23, 30, 12), num_held_out=1))
    adapter = {"method": "lora", "lora_rank": 4, "lora_layers": LAYERS, "learning_rate": 3e-2}
    run_worker(make_job(folder, **adapter, interpolation_alpha=0.5, deepspeed={}), RecordingContext(0, 1))
    return folder / "run"


@pytest.fixture(scope="module")
def exports(folder: Path) -> Path:
    return folder / EXPORTS_FOLDER


@pytest.fixture(scope="module")
def weights(folder: Path) -> FineTunedWeights:
    embeddings = plan_data(list_checkpoints(folder)[-1].job())[1].speakers_SD
    return read_weights(list_checkpoints(folder)[-1], embeddings)


def test_the_files_are_those_of_peft(exports: Path) -> None:
    folder = exports / ADAPTER_FOLDER
    config = json.loads((folder / ADAPTER_CONFIG_FILE).read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 32.0)
    stored = {name: list(tensor.shape) for name, tensor in load_file(folder / ADAPTER_FILE).items()}
    talker = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker
    linear = {f"talker.{name}": one for name, one in talker.named_modules() if isinstance(one, nn.Linear)}
    adapted = {name: one for name, one in linear.items() if re.fullmatch(config["target_modules"], name)}
    assert len(adapted) == 7 * (talker.config.num_hidden_layers + len(talker.code_predictor.model.layers))
    expected = {f"base_model.model.{name}.lora_A.weight": [4, one.in_features] for name, one in adapted.items()}
    expected |= {f"base_model.model.{name}.lora_B.weight": [one.out_features, 4] for name, one in adapted.items()}
    ((rows, (row,)),) = config["trainable_token_indices"].items()
    assert row == speaker_row(read_config(GOLDEN_CHECKPOINT))
    expected[f"base_model.model.{rows}.token_adapter.trainable_tokens_delta"] = [1, talker.config.hidden_size]
    assert stored == expected
    assert find_damage(folder) == []


def test_the_base_is_named_by_its_hash_and_no_path_of_this_machine_is_told(folder: Path, exports: Path) -> None:
    digest = hashlib.sha256((GOLDEN_CHECKPOINT / "model.safetensors").read_bytes()).hexdigest()
    adapter = exports / ADAPTER_FOLDER
    with safe_open(adapter / ADAPTER_FILE, "pt") as file:
        assert file.metadata() == {"format": "pt", BASE_DIGEST_KEY: digest}
    note = json.loads((adapter / PROVENANCE_FILE).read_text())
    assert (note["kind"], note["base_sha256"], note["base_model"]) == ("adapter", digest, None)
    written = b"".join(path.read_bytes() for path in adapter.iterdir())
    for path in (folder, GOLDEN_CHECKPOINT, Path.home()):
        assert str(path).encode() not in written


def test_a_public_base_is_named_by_its_public_name() -> None:
    cached = Path("/home/ann/.cache/huggingface/hub/models--Qwen--Qwen3-TTS-12Hz-0.6B-Base/snapshots/5d83992")
    assert published_name(cached) == "Qwen/Qwen3-TTS-12Hz-0.6B-Base"
    assert published_name(EMBEDDED_FOLDER) == "mini"
    assert published_name(Path("/home/ann/models/own")) is None


def test_an_adapter_is_a_fraction_of_the_whole_model(exports: Path) -> None:
    sizes = {
        name: (exports / name / file).stat().st_size
        for name, file in (("base", "model.safetensors"), (ADAPTER_FOLDER, ADAPTER_FILE))
    }
    assert sizes[ADAPTER_FOLDER] < sizes["base"] / 5


def merged_by_hand(exports: Path) -> Talker:
    """The base model with the adapter, as its files say."""
    talker = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker
    config = json.loads((exports / ADAPTER_FOLDER / ADAPTER_CONFIG_FILE).read_text())
    tensors = load_file(exports / ADAPTER_FOLDER / ADAPTER_FILE)
    ((_, (row,)),) = config["trainable_token_indices"].items()
    with torch.no_grad():
        for name, up in tensors.items():
            if name.endswith(".lora_B.weight"):
                down = tensors[name.replace("lora_B", "lora_A")]
                layer = name.removeprefix("base_model.model.talker.").removesuffix(".lora_B.weight")
                talker.get_parameter(f"{layer}.weight").add_(up @ down, alpha=config["lora_alpha"] / config["r"])
            elif name.endswith("trainable_tokens_delta"):
                talker.model.codec_embedding.weight[row] = tensors[name][0]
    return talker


def test_the_merged_export_is_the_base_with_the_adapter(exports: Path) -> None:
    by_hand = merged_by_hand(exports).state_dict()
    merged = VoiceModel.load(exports / "custom_voice", precision="fp32", device="cpu").talker.state_dict()
    before = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker.state_dict()
    assert merged.keys() == by_hand.keys()
    changed = {name for name, tensor in by_hand.items() if not torch.equal(tensor, before[name])}
    assert "model.codec_embedding.weight" in changed
    assert any("code_predictor" in name for name in changed)
    for name, tensor in by_hand.items():
        # Exports are bfloat16; a sum may fall to either side.
        torch.testing.assert_close(merged[name], tensor, rtol=2**-7, atol=1e-6, msg=name)


def test_a_checkpoint_is_exported_as_the_run_did(exports: Path, weights: FineTunedWeights, tmp_path: Path) -> None:
    export_all(weights, tmp_path)
    for name in (ADAPTER_FILE, ADAPTER_CONFIG_FILE):
        assert (tmp_path / ADAPTER_FOLDER / name).read_bytes() == (exports / ADAPTER_FOLDER / name).read_bytes()
    for kind in ("base", "custom_voice"):
        assert (tmp_path / kind / "model.safetensors").read_bytes() == (
            exports / kind / "model.safetensors"
        ).read_bytes()
    with pytest.raises(CheckpointError, match="exists already"):
        export_adapter(weights, tmp_path / ADAPTER_FOLDER)
    with pytest.raises(CheckpointError, match="is not an adapter"):
        export_adapter(weights, tmp_path / "base", replace_existing=True)


def test_the_same_adapter_is_the_same_bytes_however_often_it_is_written(
    weights: FineTunedWeights, tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(8)]
    for folder in folders:
        export_adapter(weights, folder)
    assert len({(folder / ADAPTER_FILE).read_bytes() for folder in folders}) == 1


def test_a_full_fine_tune_has_no_adapter(weights: FineTunedWeights, tmp_path: Path) -> None:
    full = replace(weights, job=make_job(tmp_path), adapter=None)
    with pytest.raises(TrainingError, match="trained all weights, so it has no adapter"):
        export_adapter(full, tmp_path / "adapter")
    export_all(full, tmp_path / "full")
    assert not (tmp_path / "full" / ADAPTER_FOLDER).exists()


class Reference(nn.Module):
    """As far as names and logits go, the model that the reference package loads: its network is called `talker`."""

    def __init__(self) -> None:
        super().__init__()
        self.talker = VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker.eval()

    def forward(self, codec_ids_T: torch.Tensor, codes_NQ: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of codebook 0 and of the others."""
        hidden = self.talker(self.talker.model.codec_embedding(codec_ids_T).unsqueeze(0))
        first = self.talker.model.codec_embedding(codes_NQ[:, 0])
        return self.talker.codec_head(hidden), self.talker.code_predictor(hidden[0, : len(first)], first, codes_NQ)


def test_peft_loads_an_adapter_and_computes_the_same_logits(exports: Path) -> None:
    if not importlib.util.find_spec("peft"):
        pytest.skip("not installed: peft (pip install peft)")
    from peft import PeftModel  # noqa: PLC0415 - not installed everywhere

    config = read_config(GOLDEN_CHECKPOINT)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 64, (20,), generator=generator)
    ids[3] = speaker_row(config)
    codes = torch.randint(0, 64, (6, config.talker.num_code_groups), generator=generator)
    with torch.inference_mode():
        before = Reference()(ids, codes)
        ours = Reference()
        ours.talker = merged_by_hand(exports).eval()
        expected = ours(ids, codes)
        found = PeftModel.from_pretrained(Reference(), exports / ADAPTER_FOLDER)(ids, codes)
    for theirs, own, unadapted in zip(found, expected, before, strict=True):
        assert not torch.allclose(own, unadapted, rtol=1e-2)
        torch.testing.assert_close(theirs, own, rtol=1e-4, atol=1e-5)
