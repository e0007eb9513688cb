"""Draws a training log as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from training.charts import Point, charts_file


def write_loss_curve(path: Path, lines: Sequence[Mapping[str, float]], *, title: str) -> None:
    """Draw every quantity of the log's lines over the steps, in a row of its own.

    Quantities of one group, such as `a/x` and `a/y`, share a row and its axis, so that held-out parts can be compared.
    """
    groups: dict[str, dict[str, list[Point]]] = {}
    for line in lines:
        for name, value in line.items():
            if name != "step":
                group, _, curve = name.rpartition("/")
                groups.setdefault(group or name, {}).setdefault(curve, []).append((line["step"], value))
    last_step = max((line["step"] for line in lines), default=1)
    path.write_text(charts_file(f"{title}, {last_step:g} steps", groups), encoding="utf-8")
