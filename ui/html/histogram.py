"""How values are distributed, as a picture: bars, the limits they are judged by, and words for screen readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

NUM_BARS = 16
_WIDTH, _HEIGHT, _BOTTOM = 320.0, 110.0, 18.0
_MIN_BAR = 2.0
"""One clip among hundreds must still be seen."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """What is drawn.

    Attributes:
        title: what the values are.
        unit: of them, as it is written behind a number.
        values: one per clip; what is no number is left out.
        limits: beyond these a clip is warned of or rejected.
    """

    title: str
    unit: str
    values: Sequence[float]
    limits: Sequence[float] = ()


def histogram_svg(distribution: Distribution) -> str:
    """Draw it; an empty string where there is nothing to draw."""
    values = sorted(value for value in distribution.values if math.isfinite(value))
    if not values:
        return ""
    low, high = values[0], values[-1]
    near = [limit for limit in distribution.limits if _is_near(limit, low, high)]
    low, high = min([low, *near]), max([high, *near])
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    counts = _counts(values, low, high)
    bars = "".join(_bar(index, count / max(counts)) for index, count in enumerate(counts) if count)
    lines = "".join(_limit((limit - low) / (high - low)) for limit in near)
    unit = escape(distribution.unit)
    title = escape(distribution.title)
    middle = values[len(values) // 2]
    told = f"{title}: {low:.3g} to {high:.3g} {unit}, half of the clips below {middle:.3g} {unit}"
    return (
        f'<figure class="histogram"><figcaption>{title}</figcaption>'
        f'<svg role="img" aria-label="{told}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">{bars}{lines}'
        f'<text x="0" y="{_HEIGHT - 3:g}">{low:.3g} {unit}</text>'
        f'<text x="{_WIDTH:g}" y="{_HEIGHT - 3:g}" text-anchor="end">{high:.3g} {unit}</text></svg></figure>'
    )


def _is_near(limit: float, low: float, high: float) -> bool:
    """Whether a limit belongs into the picture: one far off would squeeze all bars into one."""
    spread = max(high - low, 1e-9)
    return low - spread <= limit <= high + spread


def _counts(values: Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * NUM_BARS
    for value in values:
        counts[min(NUM_BARS - 1, int((value - low) / (high - low) * NUM_BARS))] += 1
    return counts


def _bar(index: int, share: float) -> str:
    width = _WIDTH / NUM_BARS
    height = max(_MIN_BAR, share * (_HEIGHT - _BOTTOM - 4))
    top = _HEIGHT - _BOTTOM - height
    return f'<rect x="{index * width + 1:.1f}" y="{top:.1f}" width="{width - 2:.1f}" height="{height:.1f}"/>'


def _limit(share: float) -> str:
    x = share * _WIDTH
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT - _BOTTOM:g}"/>'
