"""What the page says about who speaks: samples, voices of the library, consent. Pure."""

from __future__ import annotations

from html import escape
from pathlib import Path

from backend.audio.quality import ReferenceReport
from backend.voices.samples import SampleVoice
from backend.voices.voice import Voice
from ui.html.base import consent_in_words, file_url, recording_picture, says, size_in_words, time_in_words

SAMPLE_CONSENT = "It is synthetic speech: no person's voice is cloned, so nobody has to agree."


def sample_card(sample: SampleVoice, report: ReferenceReport, preview: Path) -> str:
    """A sample that was chosen."""
    text = f"<strong>Sample voice {escape(sample.name.title())}.</strong> {escape(sample.about)} {SAMPLE_CONSENT}"
    return says("good", text, more=recording_picture(report, preview))


def saved_card(voice: Voice, preview: Path | None) -> str:
    """A voice of the library that was chosen."""
    consent = escape(consent_in_words(voice.consent))
    text = f"<strong>{escape(voice.name)}</strong>, {escape(voice.kind)}, from the library. {consent}"
    player = (
        f'<audio controls src="{file_url(preview)}" aria-label="The recording of {escape(voice.name)}"></audio>'
        if preview is not None
        else ""
    )
    return says("good", text, more=player)


def saved_line(voice: Voice) -> str:
    """That a voice is in the library now."""
    return says(
        "good", f"<strong>{escape(voice.name)} is in the library.</strong> Compare it, or use it through the API."
    )


def download_line(name: str, path: Path, num_bytes: int) -> str:
    """That a voice was written into a file, and the link to it."""
    link = (
        f'<a class="download" href="{file_url(path)}" download="{escape(path.name)}">Download {escape(path.name)}</a>'
    )
    return says("good", f"<strong>{escape(name)} is ready:</strong> {link} ({size_in_words(num_bytes)})")


def phrase_card(phrase: str) -> str:
    """The sentence to read aloud."""
    return says("", f"Read aloud: <strong>“{escape(phrase)}”</strong>")


def listening(name: str, number: int, count: int, seconds_left: float | None = None) -> str:
    """That a recording is being examined, and how long it takes for all of them."""
    position = f" ({number} of {count})" if count > 1 else ""
    left = f", about {time_in_words(seconds_left)} left" if count > 1 and seconds_left else ""
    return says("", f"Listening to {escape(name)}{position}{left} …")
