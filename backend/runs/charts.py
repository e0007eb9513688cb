"""Line charts as inline SVG: no script, no font, no other file, and in the colours of the page they stand in."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 34
_MAX_POINTS = 600
_WANTED_TICKS = 5


def line_chart(title: str, lines: Mapping[str, Sequence[Point]], x_label: str = "step") -> str:
    """Draw named lines over a common axis; an empty string when there is nothing to draw.

    Values that are not numbers leave a gap, and long lines are thinned out.
    """
    drawn = {name: _thin(_finite(points)) for name, points in lines.items()}
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return ""
    xs = [x for points in drawn.values() for x, _ in points]
    ys = [y for points in drawn.values() for _, y in points]
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    x_range = (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 0.5, max(xs) + 0.5)
    y_range = (min(y_ticks[0], min(ys)), max(y_ticks[-1], max(ys)))

    def place(point: Point) -> Point:
        return _scale(point[0], x_range, _LEFT, _WIDTH - _RIGHT), _scale(point[1], y_range, _HEIGHT - _BOTTOM, _TOP)

    parts = [_y_axis(tick, place((x_range[0], tick))[1]) for tick in y_ticks]
    parts += [_x_axis(tick, place((tick, y_range[0]))[0]) for tick in x_ticks if x_range[0] <= tick <= x_range[1]]
    parts += [_line(number, [place(point) for point in points]) for number, points in enumerate(drawn.values())]
    # One line is what the title says.
    named = list(drawn) if len(drawn) > 1 else []
    legend = "".join(
        f'<span class="key line-{number % 4}">{html.escape(name)}</span>' for number, name in enumerate(named)
    )
    described = html.escape(f"{title}: {', '.join(drawn)} over {x_label}", quote=True)
    return (
        f'<figure><figcaption>{html.escape(title)} <span class="legend">{legend}</span></figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{described}">{"".join(parts)}'
        f'<text class="tick axis" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">'
        f"{html.escape(x_label)}</text></svg></figure>"
    )


def ticks(low: float, high: float) -> list[float]:
    """Round numbers that span a range: 1, 2 or 5 times a power of ten apart."""
    if high <= low:
        spread = abs(low) * 0.1 or 1.0
        low, high = low - spread, high + spread
    raw = (high - low) / _WANTED_TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, last + 1)]


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _thin(points: list[Point]) -> list[Point]:
    """At most so many points that a screen could show them; the last one always stays."""
    stride = math.ceil(len(points) / _MAX_POINTS)
    kept = points[::stride] if stride > 1 else points
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]


def _scale(value: float, source: tuple[float, float], low: float, high: float) -> float:
    share = (value - source[0]) / (source[1] - source[0])
    return round(low + share * (high - low), 1)


def _line(number: int, points: list[Point]) -> str:
    if len(points) == 1:
        x, y = points[0]
        return f'<circle class="line-{number % 4}" cx="{x}" cy="{y}" r="3"/>'
    path = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline class="line-{number % 4}" points="{path}"/>'


def _y_axis(value: float, y: float) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{value:.4g}</text>'
    )


def _x_axis(value: float, x: float) -> str:
    # Centred at the edge, half of it would be cut off.
    anchor = "end" if x > _WIDTH - _RIGHT - _LEFT / 2 else "middle"
    return f'<text class="tick" x="{x}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="{anchor}">{value:.4g}</text>'
