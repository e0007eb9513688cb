"""What a check found, as cards."""

from __future__ import annotations

from markupsafe import Markup

from backend.provenance.verdict import Verdict
from backend.takes.take import Take
from ui.html.messages import says
from ui.html.templates import html
from ui.words.sentences import translated
from ui.words.words import say


def verdict_card(verdict: Verdict, take: Take | None) -> Markup:
    """One file's verdict; the take only if it is one of this browser's own."""
    title = say("check.made") if verdict.is_made_by_encore else say("check.no_mark")
    lines = list(verdict.lines)
    if take is not None:
        lines.append(say("check.own_take", number=take.number, when=f"{take.made_at:%Y-%m-%d %H:%M}"))
    more = html("<ul>{}</ul>", Markup().join(html("<li>{}</li>", translated(line)) for line in lines))
    tone = "good" if verdict.is_made_by_encore else ""
    return says(tone, html("<strong>{}</strong> {}", title, verdict.name), more=more)
