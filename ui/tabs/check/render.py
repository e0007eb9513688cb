"""What a check found, as cards."""

from __future__ import annotations

from markupsafe import Markup

from backend.provenance.verdict import Verdict
from backend.takes.take import Take
from ui.html.messages import says
from ui.html.templates import html

EXPLAINED = (
    "Everything that Encore speaks says so: its sound carries a watermark, whole WAV, FLAC and MP3 files a signed "
    "statement, other files a comment. Drop a recording here to see what it carries. It stays on this machine."
)


def verdict_card(verdict: Verdict, take: Take | None) -> Markup:
    """One file's verdict; the take only if it is one of this browser's own."""
    title = "This recording was made by Encore." if verdict.is_made_by_encore else "No mark of Encore."
    lines = list(verdict.lines)
    if take is not None:
        lines.append(f"It is your take {take.number} of {take.made_at:%Y-%m-%d %H:%M} UTC.")
    more = html("<ul>{}</ul>", Markup().join(html("<li>{}</li>", line) for line in lines))
    tone = "good" if verdict.is_made_by_encore else ""
    return says(tone, html("<strong>{}</strong> {}", title, verdict.name), more=more)
