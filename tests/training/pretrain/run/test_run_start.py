"""What a run says of the steps behind its first weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from pydantic import BaseModel

from training.pretrain.run.run_start import record_start, steps_before
from training.pretrain.run.training_state import save_state


class Recipe(BaseModel):
    """Of a run that only counts."""

    num_steps: int = 50


def run_of(folder: Path, step: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_state(folder, Recipe(), step, {"network": torch.nn.Linear(1, 1)}, {}, corpus_size=1)
    return folder


def new_run(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_steps_add_up_from_run_to_run(tmp_path: Path):
    first, second, third = run_of(tmp_path / "first", 30), new_run(tmp_path / "second"), new_run(tmp_path / "third")
    assert steps_before(first) == 0
    record_start(second, first, stage="talker")
    assert steps_before(second) == 30
    run_of(second, 12)
    (second / "weights.pt").write_bytes(b"")
    record_start(third, second / "weights.pt", stage="talker")
    assert steps_before(third) == 42


def test_an_exported_tokenizer_has_the_steps_of_its_run(tmp_path: Path):
    first, second = run_of(tmp_path / "first", 30), new_run(tmp_path / "second")
    (first / "speech_tokenizer").mkdir()
    record_start(second, first / "speech_tokenizer", stage="tokenizer")
    assert steps_before(second) == 30


def test_a_checkpoint_tells_its_own_stage(tmp_path: Path):
    checkpoint, run = tmp_path / "mini", new_run(tmp_path / "run")
    (checkpoint / "training").mkdir(parents=True)
    (checkpoint / "speech_tokenizer").mkdir()
    runs = {"talker": {"steps_before": 5, "steps_done": 7}, "tokenizer": {"steps_done": 3}}
    (checkpoint / "training" / "about.json").write_text(json.dumps({"runs": runs}))
    record_start(run, checkpoint, stage="talker")
    assert steps_before(run) == 12
    record_start(run, checkpoint / "speech_tokenizer", stage="tokenizer")
    assert steps_before(run) == 3
    record_start(run, checkpoint, stage="another")
    assert steps_before(run) == 0
