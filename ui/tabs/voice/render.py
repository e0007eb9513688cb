"""What the Speak tab says: recordings and their quality, samples, voices of the library, takes under way. Pure."""

from __future__ import annotations

import math
from pathlib import Path

from markupsafe import Markup

from backend.audio.quality import NOISY_RATIO_DB, QUIET_SPEECH_DBFS, Concern, ReferenceReport
from backend.errors import EncoreError
from backend.serving.speech.audio_stream import SpeechProgress
from backend.takes.take import Take
from backend.voices.samples import SampleVoice
from backend.voices.voice import Voice
from backend.web.redaction import public_message
from training.model.generation.frame_loop import FinishReason
from training.model.hub.hub import EMBEDDED_MODEL
from ui.html.messages import note, says
from ui.html.models import CLONING_MODELS
from ui.html.sound import length_in_words, sound_html
from ui.html.takes import ENDINGS, numbered_parts
from ui.html.templates import html, render
from ui.html.words import consent_in_words, short_name, size_in_words, time_in_words, time_left
from ui.words.words import say

VOICE_NOTE = "Ten to thirty seconds of one person speaking clearly are ideal."
PHRASE_NOTE = (
    "A random sentence, read by the speaker, shows that the person is present and agrees. Speech recognition on this "
    "machine listens."
)
FIRST_TEXT = "Hello! This is what I sound like when a machine has listened to me for a few seconds."
LINE = (
    "The boy was there when the sun rose. A rod is used to catch pink salmon, and the source of the huge river is the "
    "clear spring. Help the woman get back to her feet."
)
SAMPLE_CONSENT = "It is synthetic speech: no person's voice is cloned, so no consent is needed."

ADVICE = {
    Concern.CLIPPED: "Overdriven: the loudest parts are cut off and crackle. Record again at a lower level.",
    Concern.NOISY: "Noisy: the noise behind the voice is cloned too. Try a quieter room, closer to the microphone.",
    Concern.QUIET: "Quiet: speak up, or move closer to the microphone.",
    Concern.SHORT: "Short: ten seconds or more bring the voice closer.",
    Concern.MADE_BY_ENCORE: "This recording was made by Encore: a voice cloned from it is a copy of a copy.",
    Concern.LONG: "Longer than needed: ten to thirty seconds are as good, and quicker.",
}

VERY_QUIET_RATIO_DB = 40.0

SMALLER_MODEL = CLONING_MODELS[0]
ORDINARY_BITS_PER_SECOND = 50e6
"""A download at home."""


def verdict(report: ReferenceReport, preview: Path, *, name: str = "") -> Markup:
    """How good a recording is to clone from, in words and as a picture; `preview` is the WAV to listen to."""
    level = "quiet" if report.speech_dbfs < QUIET_SPEECH_DBFS else "good"
    facts = (
        f"Length {report.seconds:.1f} s, level {level} ({report.speech_dbfs:.0f} dB), "
        f"background {_background(report.speech_over_noise_db)} ({report.noise_dbfs:.0f} dB)."
    )
    return render(
        "voice",
        "verdict",
        name=name,
        facts=facts,
        advice=[ADVICE[concern] for concern in report.concerns],
        picture=recording_picture(report, preview),
    )


def refusal(message: str) -> Markup:
    """Why a recording cannot be used."""
    return says("bad", html("<strong>This recording cannot be used.</strong> {}", message), role="alert")


def listening(name: str, number: int, count: int, seconds_left: float | None = None) -> Markup:
    """That a recording is being examined, and how long all of them will take."""
    position = f" ({number} of {count}){time_left(seconds_left)}" if count > 1 else ""
    return says("", f"Listening to {name}{position} …")


def recording_picture(report: ReferenceReport, preview: Path) -> Markup:
    """A recording to look at and to listen to."""
    return sound_html(preview, "The recording", length=length_in_words(report.seconds))


def sample_card(sample: SampleVoice) -> Markup:
    """A sample that was chosen."""
    return note(html("<strong>Sample voice {}.</strong> {} {}", sample.name.title(), sample.about, SAMPLE_CONSENT))


def saved_card(voice: Voice) -> Markup:
    """A voice of the library that was chosen."""
    consent = consent_in_words(voice.consent)
    return note(html("<strong>{}</strong>, {}, from the library. {}", voice.name, voice.kind, consent))


def line_to_read() -> Markup:
    """Something to say into the microphone: most sounds of English in a breath."""
    return html('<p class="read-aloud"><span>{}</span> “{}”</p>', "Read aloud:", LINE)


def phrase_card(phrase: str) -> Markup:
    """The sentence to read aloud."""
    return says("", html("Read aloud: <strong>“{}”</strong>", phrase))


def speaking_line(progress: SpeechProgress) -> Markup:
    """How much of a take has been spoken."""
    part = ""
    if progress.num_segments > 1:
        part = f", part {min(progress.segments_done + 1, progress.num_segments)} of {progress.num_segments}"
    left = time_left(progress.seconds_left) if math.isfinite(progress.seconds_left) else ""
    lost = f" {numbered_parts(progress.doubtful_parts)} may have lost words." if progress.doubtful_parts else ""
    return says("", f"Speaking: {progress.seconds_spoken:.1f} s so far{part}{left}.{lost}")


def spoken_line(take: Take) -> Markup:
    """That a take is ready, and how it ended."""
    numbers = [number for number, _ in take.doubtful_parts]
    tone = "good" if take.finish_reason is FinishReason.EOS and not numbers else "mixed"
    ready = html("<strong>Take {} is ready:</strong>", take.number)
    doubt = f" {numbered_parts(numbers)} may have lost words: listen, and speak again." if numbers else ""
    return says(tone, html("{} {:.1f} s, {}.{}", ready, take.seconds, ENDINGS[take.finish_reason], doubt))


def not_kept_line(problem: str) -> Markup:
    """That it was spoken, and why it is in no list: while it lies in the player it can be heard again."""
    return says("mixed", html("<strong>{}</strong> {}", say("speak.not_kept"), problem), role="alert")


def refusal_line(error: EncoreError) -> Markup:
    """Why it does not speak; what a new voice still needs is one press away."""
    button = html('<button type="button" class="quiet" data-open-voice>{}</button>', say("speak.finish"))
    return says("bad", public_message(error), more=button if "consent" in str(error) else "", role="alert")


def part_line(take: Take, number: int) -> Markup:
    """That a part was spoken again, and whether it is better."""
    doubt = take.parts[number - 1].doubt
    tone, better = ("mixed", " It may still lack words.") if doubt is not None else ("good", "")
    return says(tone, html("<strong>Part {} of take {} was spoken again.</strong>{}", number, take.number, better))


def likeness_line(take: Take) -> Markup:
    """That a take resembles its recording no more than a stranger does, and what would help."""
    said = "This take is no more like its recording than a stranger's voice is."
    if take.is_fine_tuned:
        help_ = "More clips, or a longer fine-tune, would bring it closer."
    elif take.model_name == EMBEDDED_MODEL:
        said = "The built-in model does not know voices like this one."
        size, seconds = SMALLER_MODEL.num_bytes, SMALLER_MODEL.num_bytes * 8 / ORDINARY_BITS_PER_SECOND
        help_ = (
            f"{short_name(SMALLER_MODEL.name)} knows many more: load it above ({size_in_words(size)}, about "
            f"{time_in_words(seconds)} at 50 Mbit/s). A fine-tune on a few minutes of this voice helps, too."
        )
    else:
        help_ = "A fine-tune on a few minutes of this voice would bring it closer."
    return says("mixed", html("<strong>{}</strong> {}", said, help_))


def _background(ratio_db: float) -> str:
    if ratio_db < NOISY_RATIO_DB:
        return "noisy"
    return "quiet" if ratio_db >= VERY_QUIET_RATIO_DB else "fairly quiet"
