"""Line charts and histograms as SVG: no script, no font, and inside a page in the colours of that page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 34
_MAX_POINTS = 600
_WANTED_TICKS = 5

_FILE_TOP, _FILE_GAP, _MAX_NAMED = 48, 30, 6
_COLOURS = ("#1b6ca8", "#c2571a", "#3d8b40", "#8a4fa3")
_FILE_STYLE = ".grid { stroke: #ddd; } polyline { fill: none; }" + "".join(
    f" polyline.line-{number} {{ stroke: {colour}; }} .key.line-{number}, circle.line-{number} {{ fill: {colour}; }}"
    for number, colour in enumerate(_COLOURS)
)

_NUM_BARS, _BARS_WIDTH, _BARS_HEIGHT = 16, 320, 110
_MIN_BAR = 2.0
"""One clip among hundreds must still be visible."""


def line_chart(title: str, lines: Mapping[str, Sequence[Point]], x_label: str = "step") -> str:
    """Draw named lines over a common axis, for a page; an empty string when there is nothing to draw.

    Values that are not numbers leave a gap, and long lines are thinned out.
    """
    drawn = _drawable(lines)
    if not drawn:
        return ""
    # One line is what the title says.
    named = list(drawn) if len(drawn) > 1 else []
    legend = "".join(f'<span class="key line-{number % 4}">{escape(name)}</span>' for number, name in enumerate(named))
    described = escape(f"{title}: {', '.join(drawn)} over {x_label}")
    return (
        f'<figure><figcaption>{escape(title)} <span class="legend">{legend}</span></figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{described}">'
        f"{_plot(drawn, x_label)}</svg></figure>"
    )


def charts_file(title: str, charts: Mapping[str, Mapping[str, Sequence[Point]]], x_label: str = "step") -> str:
    """Line charts one below the other, each with its name, as an SVG file with colours of its own."""
    rows: list[str] = []
    for name, lines in charts.items():
        drawn, top = _drawable(lines), _FILE_TOP + len(rows) * (_HEIGHT + _FILE_GAP)
        # A legend only for a few curves.
        named = list(drawn) if 1 < len(drawn) <= _MAX_NAMED else []
        legend = "".join(
            f'<text class="key line-{number % 4}" x="{_WIDTH - _RIGHT}" y="{top + 24 + 15 * number}" text-anchor="end">'
            f"{escape(line)}</text>"
            for number, line in enumerate(named)
        )
        plot = f'<svg y="{top}" width="{_WIDTH}" height="{_HEIGHT}">{_plot(drawn, x_label)}</svg>' if drawn else ""
        rows.append(f'<text x="{_LEFT}" y="{top}">{escape(name)}</text>{plot}{legend}\n')
    height = _FILE_TOP + len(rows) * (_HEIGHT + _FILE_GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="12">\n<style>{_FILE_STYLE}</style>\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{_LEFT}" y="24" font-size="16">{escape(title)}</text>\n{"".join(rows)}</svg>\n'
    )


def histogram(title: str, values: Sequence[float], *, unit: str, limits: Sequence[float] = ()) -> str:
    """Draw how values are distributed, for a page; an empty string when there is nothing to draw.

    Args:
        title: what the values are.
        values: one per clip; NaN and infinity are left out.
        unit: of the values, as it is written behind a number.
        limits: beyond these a clip gets a warning or is rejected; those far off are not drawn.
    """
    found = sorted(value for value in values if math.isfinite(value))
    if not found:
        return ""
    # A limit far off would squeeze all bars into one.
    spread = max(found[-1] - found[0], 1e-9)
    near = [limit for limit in limits if found[0] - spread <= limit <= found[-1] + spread]
    low, high = min([found[0], *near]), max([found[-1], *near])
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    counts = Counter(min(_NUM_BARS - 1, int((value - low) / (high - low) * _NUM_BARS)) for value in found)
    base, width = _BARS_HEIGHT - 18, _BARS_WIDTH / _NUM_BARS
    parts = []
    for bar, count in sorted(counts.items()):
        height = max(_MIN_BAR, count / max(counts.values()) * (base - 4))
        place = f'x="{bar * width + 1:.1f}" y="{base - height:.1f}" width="{width - 2:.1f}" height="{height:.1f}"'
        parts.append(f"<rect {place}/>")
    for limit in near:
        x = round((limit - low) / (high - low) * _BARS_WIDTH, 1)
        parts.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{base}"/>')
    middle = found[len(found) // 2]
    described = escape(f"{title}: {low:.3g} to {high:.3g} {unit}, half of the clips below {middle:.3g} {unit}")
    return (
        f'<figure class="histogram"><figcaption>{escape(title)}</figcaption>'
        f'<svg role="img" aria-label="{described}" viewBox="0 0 {_BARS_WIDTH} {_BARS_HEIGHT}">{"".join(parts)}'
        f'<text x="0" y="{_BARS_HEIGHT - 3}">{low:.3g} {escape(unit)}</text>'
        f'<text x="{_BARS_WIDTH}" y="{_BARS_HEIGHT - 3}" text-anchor="end">{high:.3g} {escape(unit)}</text>'
        "</svg></figure>"
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


def _drawable(lines: Mapping[str, Sequence[Point]]) -> dict[str, list[Point]]:
    drawn = {name: _thin(_finite(points)) for name, points in lines.items()}
    return {name: points for name, points in drawn.items() if points}


def _plot(drawn: Mapping[str, list[Point]], x_label: str) -> str:
    """Axes and lines, in a picture of the one size."""
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
    label = (
        f'<text class="tick axis" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">{escape(x_label)}</text>'
    )
    return "".join(parts) + label


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
