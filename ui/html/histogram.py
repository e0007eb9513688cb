"""How values are distributed, as a picture: bars, the limits they are judged by, and words for screen readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ui.html.templates import html

NUM_BARS = 16
_WIDTH, _HEIGHT, _BOTTOM = 320.0, 110.0, 18.0
_MIN_BAR = 2.0
"""One clip among hundreds must still be visible."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """What is drawn.

    Attributes:
        title: what the values are.
        unit: of them, as it is written behind a number.
        values: one per clip; NaN and infinity are left out.
        limits: beyond these a clip gets a warning or is rejected.
    """

    title: str
    unit: str
    values: Sequence[float]
    limits: Sequence[float] = ()


def histogram_svg(distribution: Distribution) -> Markup:
    """Draw it; empty if there is nothing to draw."""
    values = sorted(value for value in distribution.values if math.isfinite(value))
    if not values:
        return Markup()
    low, high = values[0], values[-1]
    near = [limit for limit in distribution.limits if _is_near(limit, low, high)]
    low, high = min([low, *near]), max([high, *near])
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    counts = _counts(values, low, high)
    bars = Markup().join(_bar(index, count / max(counts)) for index, count in enumerate(counts) if count)
    lines = Markup().join(_limit((limit - low) / (high - low)) for limit in near)
    title, unit = distribution.title, distribution.unit
    label = f"{title}: {low:.3g} to {high:.3g} {unit}, half of the clips below {values[len(values) // 2]:.3g} {unit}"
    return html(
        '<figure class="histogram"><figcaption>{}</figcaption>'
        '<svg role="img" aria-label="{}" viewBox="0 0 {:g} {:g}">{}{}'
        '<text x="0" y="{:g}">{:.3g} {}</text>'
        '<text x="{:g}" y="{:g}" text-anchor="end">{:.3g} {}</text></svg></figure>',
        *(title, label, _WIDTH, _HEIGHT, bars, lines),
        *(_HEIGHT - 3, low, unit, _WIDTH, _HEIGHT - 3, high, unit),
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


def _bar(index: int, share: float) -> Markup:
    width = _WIDTH / NUM_BARS
    height = max(_MIN_BAR, share * (_HEIGHT - _BOTTOM - 4))
    top = _HEIGHT - _BOTTOM - height
    place = (index * width + 1, top, width - 2, height)
    return html('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>', *place)


def _limit(share: float) -> Markup:
    x = share * _WIDTH
    return html('<line x1="{:.1f}" x2="{:.1f}" y1="0" y2="{:g}"/>', x, x, _HEIGHT - _BOTTOM)
