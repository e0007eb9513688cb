"""A waveform as an inline picture: no script, no library, readable by screen readers through its label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from ui.html.templates import html
from ui.html.words import file_url

BAR_WIDTH = 2.0
BAR_STEP = 3.0
HEIGHT = 64.0
MIN_BAR = 1.5
"""Silence is a thin line, not a gap: it is part of the recording."""


def waveform_svg(envelope: Sequence[float], label: str, seek: Path | None = None) -> Markup:
    """Draw peaks between 0 and 1 as bars around a middle line; `page.css` gives them a colour.

    Args:
        envelope: one peak per bar; values outside 0 to 1 are clamped.
        label: what a screen reader says instead of the picture.
        seek: the file that is played from where one clicks.
    """
    bars = "".join(_bar(index * BAR_STEP, peak) for index, peak in enumerate(envelope))
    width = f"{max(len(envelope), 1) * BAR_STEP:g}"
    seeks = html(' data-seek="{}"', file_url(seek)) if seek is not None else ""
    return html(
        '<svg class="waveform"{} role="img" aria-label="{}" viewBox="0 0 {} {:g}" preserveAspectRatio="none">'
        '<path d="{}"/></svg>',
        *(seeks, label, width, HEIGHT, bars),
    )


def _bar(left: float, peak: float) -> str:
    height = max(MIN_BAR, min(max(peak, 0.0), 1.0) * HEIGHT)
    return f"M{left:g} {(HEIGHT - height) / 2:.1f}h{BAR_WIDTH:g}v{height:.1f}h-{BAR_WIDTH:g}z"
