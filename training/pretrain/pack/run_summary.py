"""A shipped checkpoint's summary of the runs that made it: short logs, curves and the machine."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import torch

from training.pretrain.run.loss_curve import write_loss_curve
from training.pretrain.run.training_log import read_log

_NUM_LINES = 120
_VALIDATION = "validation/"


def write_summary(folder: Path, name: str, run: Path, *, title: str) -> None:
    """Write `NAME.jsonl`, a log of a hundred lines or so, and `NAME.svg`, its curves."""
    lines = thinned(list(read_log(run)))
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_loss_curve(folder / f"{name}.svg", lines, title=title)


def thinned(lines: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Average stretches of training lines; validation lines are kept."""
    validations = [dict(line) for line in lines if any(name.startswith(_VALIDATION) for name in line)]
    training = [line for line in lines if not any(name.startswith(_VALIDATION) for name in line)]
    stretch = max(1, -(-len(training) // _NUM_LINES))
    means = [_mean(training[start : start + stretch]) for start in range(0, len(training), stretch)]
    return sorted([*means, *validations], key=lambda line: line["step"])


def _mean(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One line at the last step; a quantity that some lines lack is a mean over the others."""
    names = dict.fromkeys(name for line in lines for name in line)
    means = {name: round(fmean(line[name] for line in lines if name in line), 5) for name in names}
    return {**means, "step": lines[-1]["step"]}


def describe_machine() -> str:
    """The machine that packs, usually the one that trained, without its host name."""
    cpu_file = Path("/proc/cpuinfo")
    cpu = cpu_file.read_text(encoding="utf-8") if cpu_file.is_file() else ""
    model = re.search(r"model name\s*:\s*(.+)", cpu)
    kind = model[1].strip() if model else platform.machine()
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores of {kind}{gpu}, torch {torch.__version__}, Python {platform.python_version()}"
