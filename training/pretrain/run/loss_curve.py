"""Draws a training log as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

_WIDTH, _ROW_HEIGHT, _MARGIN, _GAP = 760, 170, 60, 34
_COLOURS = ("#1b6ca8", "#c2571a", "#3d8b40", "#8a4fa3", "#7a6a00", "#a83250")


def write_loss_curve(path: Path, lines: Sequence[Mapping[str, float]], *, title: str) -> None:
    """Draw every quantity of the log's lines over the steps, in a row of its own.

    Quantities of one group, such as `a/x` and `a/y`, share a row and its axis, so that held-out parts can be compared.
    """
    groups: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for line in lines:
        for name, value in line.items():
            if name != "step":
                group = name.rpartition("/")[0] or name
                groups.setdefault(group, {}).setdefault(name, []).append((line["step"], value))
    height = _MARGIN + len(groups) * (_ROW_HEIGHT + _GAP)
    last_step = max((line["step"] for line in lines), default=1)
    rows = [
        _row(group, curves, _MARGIN + number * (_ROW_HEIGHT + _GAP), last_step)
        for number, (group, curves) in enumerate(groups.items())
    ]
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{_MARGIN}" y="24" font-size="16">{escape(title)}, {last_step:g} steps</text>\n'
        f"{''.join(rows)}</svg>\n",
        encoding="utf-8",
    )


def _row(group: str, curves: Mapping[str, Sequence[tuple[float, float]]], top: float, last_step: float) -> str:
    values = [value for curve in curves.values() for _, value in curve]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    right = _WIDTH - 20
    drawn = [
        f'<text x="{_MARGIN}" y="{top - 6:.0f}">{escape(group)}</text>\n',
        f'<rect x="{_MARGIN}" y="{top}" width="{right - _MARGIN}" height="{_ROW_HEIGHT}" fill="none" stroke="#bbb"/>\n',
        f'<text x="{_MARGIN - 6}" y="{top + 10}" text-anchor="end">{high:.3g}</text>\n',
        f'<text x="{_MARGIN - 6}" y="{top + _ROW_HEIGHT}" text-anchor="end">{low:.3g}</text>\n',
    ]
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_MARGIN + (right - _MARGIN) * step / last_step:.1f},{top + _ROW_HEIGHT * (high - value) / span:.1f}"
            for step, value in curve
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>\n')
        # A legend only for a few curves.
        if 1 < len(curves) <= len(_COLOURS):
            label = escape(name.rpartition("/")[2])
            place = f'x="{right - 6}" y="{top + 16 + 15 * number}" text-anchor="end"'
            drawn.append(f'<text {place} fill="{colour}">{label}</text>\n')
    return "".join(drawn)
