"""Numbers, names and durations as people write them. Plain text: what shows them escapes it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from urllib.parse import quote

from backend.store.trash import Deleted
from backend.voices.consent import Consent
from ui.words.sentences import translated
from ui.words.words import say

LANGUAGES = {
    "chinese": "language.chinese",
    "english": "language.english",
    "french": "language.french",
    "german": "language.german",
    "italian": "language.italian",
    "japanese": "language.japanese",
    "korean": "language.korean",
    "portuguese": "language.portuguese",
    "russian": "language.russian",
    "spanish": "language.spanish",
}


PURPOSES = {
    "clones a voice; the smaller": "model.smaller",
    "clones a voice; the better": "model.better",
    "speaks in given voices": "model.given_voices",
    "speaks as described": "model.as_described",
    "the small model inside Encore": "model.inside_encore",
    "fast, less accurate": "model.whisper_tiny",
    "the default, for clear speech": "model.whisper_base",
    "better, also with accents": "model.whisper_small",
    "good in many languages": "model.whisper_medium",
    "most accurate": "model.whisper_large",
    "nearly as accurate as large-v3, faster": "model.whisper_turbo",
}
"""What the models are good for, as their lists have it."""


def consent_in_words(consent: Consent | None) -> str:
    """Who agreed to what, and when."""
    if consent is None:
        return ""
    if consent.also:
        return " ".join(map(consent_in_words, consent.all))
    aloud = f" {say('consent.aloud')}" if consent.spoken is not None else ""
    date = f"{consent.given_at:%Y-%m-%d}"
    return say("consent.given", who=consent.who, date=date, wording=consent.wording) + aloud


def deleted_name(deleted: Deleted) -> str:
    """What the thing is called; takes and runs have no name, and their label is stored in English."""
    number = re.fullmatch(r"Take (\d+)", deleted.label) if deleted.kind == "take" else None
    return translated(deleted.label) if number is None else say("takes.take", number=number[1])


def language_name(name: str) -> str:
    """What a language of a model is called; one that there is no word for by its own name."""
    return say(LANGUAGES[name]) if name in LANGUAGES else name.title()


def purpose_in_words(purpose: str) -> str:
    """What a model is good for, in the language of the page."""
    return say(PURPOSES[purpose]) if purpose in PURPOSES else purpose


PRESET_WORDS = {"quick": "tune.quick", "standard": "tune.standard", "thorough": "tune.thorough"}


def preset_name(preset: str) -> str:
    """A recipe as the page calls it; one that it does not know as it is."""
    return say(PRESET_WORDS[preset]) if preset in PRESET_WORDS else preset


def file_name(*parts: str, suffix: str) -> str:
    """A name for a download that every file system takes: `rufus_hello-this-is_t04.wav`."""
    slugs = [_slug(part) for part in parts]
    return "_".join(slug for slug in slugs if slug) + suffix


def _slug(words: str) -> str:
    """The first words in plain letters; other scripts keep their own."""
    plain = "".join(one for one in unicodedata.normalize("NFKD", words[:200]) if not unicodedata.combining(one))
    stem = re.sub(r"\.(wav|mp3|m4a|flac|ogg|webm|mp4|3gp|opus)$", "", plain.lower())
    return "-".join(
        re.findall(r"\w+", stem.replace("'", "").replace("\N{RIGHT SINGLE QUOTATION MARK}", "").replace("_", " "))[:4]
    )[:40]


def file_url(path: Path) -> str:
    """Address of a file in the page's temporary folder; relative, so that a proxy may add a prefix."""
    return f"gradio_api/file={quote(str(path))}"


def gib(num_bytes: float) -> str:
    """Memory as it is usually quoted; below a GiB in MiB."""
    amount = num_bytes / 2**30
    return f"{amount:.1f} GiB" if amount >= 1 else f"{num_bytes / 2**20:.0f} MiB"


def size_in_words(num_bytes: float) -> str:
    """Bytes as MB or GB."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"


def time_in_words(seconds: float) -> str:
    """A duration, rounded because it is an estimate."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def time_left(seconds: float | None) -> str:
    """How long something still takes, as the end of a clause; empty if that is unknown."""
    return f", {say('data.left', time=time_in_words(seconds))}" if seconds else ""
