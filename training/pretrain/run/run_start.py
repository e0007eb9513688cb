"""Records how many steps a run's initial weights were trained for, so that a checkpoint can report all of them."""

from __future__ import annotations

import json
from pathlib import Path

from training.pretrain.run.training_state import read_step

_FILE = "start.json"
_STEPS = "steps_before"
_ABOUT = ("training", "about.json")


def record_start(run: Path, start: Path, *, stage: str) -> None:
    """Record in a new run how many steps its initial weights were trained for.

    Args:
        start: a run, a checkpoint folder with a description of its runs, or a file in one of them.
        stage: whose steps to count: "tokenizer" or "talker".
    """
    folder = start.parent if start.is_file() else start
    (run / _FILE).write_text(json.dumps({_STEPS: _steps_behind(folder, stage)}) + "\n", encoding="utf-8")


def steps_before(run: Path) -> int:
    """Number of steps that were done before the first one of this run."""
    path = run / _FILE
    return int(json.loads(path.read_text(encoding="utf-8"))[_STEPS]) if path.is_file() else 0


def _steps_behind(folder: Path, stage: str) -> int:
    # An exported speech tokenizer is in a folder of its run or checkpoint.
    for place in (folder, folder.parent):
        step = read_step(place)
        if step is not None:
            return step + steps_before(place)
        about = place.joinpath(*_ABOUT)
        if about.is_file():
            described = json.loads(about.read_text(encoding="utf-8"))["runs"].get(stage, {})
            return int(described.get("steps_done", 0)) + int(described.get(_STEPS, 0))
    return 0
