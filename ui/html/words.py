"""Numbers, names and durations as people write them. Plain text: what shows them escapes it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from urllib.parse import quote

from backend.voices.consent import Consent

PRECISIONS = {"fp32": "full precision (fp32)", "bf16": "half precision (bf16)", "int8": "8-bit weights (int8)"}
DEVICES = {"cpu": "the CPU", "cuda": "the GPU (CUDA)"}


def consent_in_words(consent: Consent | None) -> str:
    """Who agreed to what, and when."""
    if consent is None:
        return ""
    if consent.also:
        return " ".join(map(consent_in_words, consent.all))
    aloud = " It was also said aloud." if consent.spoken is not None else ""
    return f"Consent by {consent.who} on {consent.given_at:%Y-%m-%d}: “{consent.wording}”{aloud}"


def count_of(number: int, what: str) -> str:
    """`1 clip`, `2 clips`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


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


def short_name(model: str) -> str:
    """A model as it is called in passing: of a folder only the last part."""
    return model if model.count("/") < 2 else model.rstrip("/").rsplit("/", 1)[-1]


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
    return f", about {time_in_words(seconds)} left" if seconds else ""
