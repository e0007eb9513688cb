"""What a run began with: the steps behind its first weights, so that a checkpoint can tell all that went into it."""

from __future__ import annotations

import json
from pathlib import Path

from training.pretrain.run.training_state import read_step

_FILE = "start.json"
_STEPS = "steps_before"
_ABOUT = ("training", "about.json")


def note_start(run: Path, start: Path, *, stage: str) -> None:
    """Write beside a new run how many steps its weights have behind them.

    Args:
        start: a run, a checkpoint folder that tells of its making, or a file in one of them.
        stage: whose steps count there: "tokenizer" or "talker".
    """
    folder = start.parent if start.is_file() else start
    (run / _FILE).write_text(json.dumps({_STEPS: _steps_behind(folder, stage)}) + "\n", encoding="utf-8")


def steps_before(run: Path) -> int:
    """How many steps were done before the first one of this run."""
    path = run / _FILE
    return int(json.loads(path.read_text(encoding="utf-8"))[_STEPS]) if path.is_file() else 0


def _steps_behind(folder: Path, stage: str) -> int:
    # An exported speech tokenizer lies in a folder of its run, and of the checkpoint that tells of it.
    for place in (folder, folder.parent):
        step = read_step(place)
        if step is not None:
            return step + steps_before(place)
        about = place.joinpath(*_ABOUT)
        if about.is_file():
            told = json.loads(about.read_text(encoding="utf-8"))["runs"].get(stage, {})
            return int(told.get("steps_done", 0)) + int(told.get(_STEPS, 0))
    return 0
