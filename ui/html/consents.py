"""Who agreed to the cloning of which recordings of a dataset."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from backend.voices.consent import Consent
from ui.html.messages import NOTHING, says
from ui.html.templates import html
from ui.html.words import consent_in_words
from ui.words.words import say, say_count


def consents_html(consents: Iterable[Consent | None]) -> Markup:
    """The consents for recordings, each once, and for how many of them there is none yet."""
    listed = list(consents)
    if not listed:
        return NOTHING
    given: dict[str, list[Consent]] = {}
    for consent in listed:
        if consent is not None:
            given.setdefault(consent_in_words(consent), []).append(consent)
    counted = {words: say_count(len(those), "fields.recording", "fields.recordings") for words, those in given.items()}
    lines = [html("<li>{} ({})</li>", words, count) for words, count in sorted(counted.items())]
    more = html('<ul class="facts">{}</ul>', Markup().join(lines)) if lines else Markup()
    if num_missing := listed.count(None):
        said = say("consent.none_for_some", missing=num_missing, number=len(listed))
        return says("mixed", say("consent.none") if num_missing == len(listed) else said, more=more)
    return says("good", html('<details class="why"><summary>{}</summary>{}</details>', say("data.consent_given"), more))
