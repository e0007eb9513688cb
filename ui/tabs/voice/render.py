"""What the Speak tab says: recordings and their quality, samples, voices of the library, takes under way. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from backend.audio.quality import NOISY_RATIO_DB, QUIET_SPEECH_DBFS, Concern, ReferenceReport
from backend.errors import EncoreError
from backend.serving.speech.audio_stream import SpeechProgress
from backend.takes.take import Take
from backend.voices.errors import ConsentInvalid, ConsentMissing
from backend.voices.samples import SampleVoice
from backend.voices.voice import Voice
from training.model.generation.finish_reason import FinishReason
from training.model.hub.hub import EMBEDDED_MODEL, short_name
from ui.fields import FormIncomplete
from ui.html.messages import note, reason, says
from ui.html.models import CLONING_MODELS
from ui.html.sound import length_in_words, sound_html
from ui.html.takes import ENDINGS, numbered_parts
from ui.html.templates import html, render
from ui.html.words import consent_in_words, size_in_words, time_in_words, time_left
from ui.words.sentences import translated
from ui.words.words import say

FIRST_TEXT = "Hello! This is what I sound like when a machine has listened to me for a few seconds."
LINE = (
    "The boy was there when the sun rose. A rod is used to catch pink salmon, and the source of the huge river is the "
    "clear spring. Help the woman get back to her feet."
)
"""Both in English for everybody: all models speak it, and the first one nothing else."""

ADVICE = {
    Concern.CLIPPED: "speak.advice_clipped",
    Concern.NOISY: "speak.advice_noisy",
    Concern.QUIET: "speak.advice_quiet",
    Concern.SHORT: "speak.advice_short",
    Concern.MADE_BY_ENCORE: "speak.advice_encore",
    Concern.LONG: "speak.advice_long",
}

VERY_QUIET_RATIO_DB = 40.0

SMALLER_MODEL = CLONING_MODELS[0]
ORDINARY_BITS_PER_SECOND = 50e6
"""A download at home."""


class StepsMissing(FormIncomplete):
    """Something is still to be done before it can speak.

    Attributes:
        steps: what, by its words.
    """

    def __init__(self, steps: Sequence[str]) -> None:
        self.steps = tuple(steps)
        super().__init__(say("speak.missing", steps="; ".join(map(say, self.steps))))


def verdict(report: ReferenceReport, preview: Path, *, name: str = "") -> Markup:
    """How good a recording is to clone from, in words and as a picture; `preview` is the WAV to listen to."""
    level = "speak.level_quiet" if report.speech_dbfs < QUIET_SPEECH_DBFS else "speak.level_good"
    facts = say(
        "speak.recording_facts",
        seconds=f"{report.seconds:.1f}",
        level=say(level),
        speech=f"{report.speech_dbfs:.0f}",
        background=say(_background(report.speech_over_noise_db)),
        noise=f"{report.noise_dbfs:.0f}",
    )
    return render(
        "voice",
        "verdict",
        name=name,
        facts=facts,
        advice=[say(ADVICE[concern]) for concern in report.concerns],
        picture=recording_picture(report, preview),
    )


def refusal(message: str) -> Markup:
    """Why a recording cannot be used."""
    return says("bad", html("<strong>{}</strong> {}", say("speak.refused"), message), role="alert")


def listening(name: str, number: int, count: int, seconds_left: float | None = None) -> Markup:
    """That a recording is being examined, and how long all of them will take."""
    place = say("fields.done_of", done=number, total=count)
    position = f" ({place}){time_left(seconds_left)}" if count > 1 else ""
    return says("", say("speak.hearing", name=name, position=position))


def recording_picture(report: ReferenceReport, preview: Path) -> Markup:
    """A recording to look at and to listen to."""
    return sound_html(preview, say("speak.the_recording"), length=length_in_words(report.seconds))


def sample_card(sample: SampleVoice) -> Markup:
    """A sample that was chosen."""
    title = say("speak.sample_title", name=sample.name.title())
    return note(html("<strong>{}</strong> {} {}", title, sample.about, say("speak.sample_consent")))


def saved_card(voice: Voice) -> Markup:
    """A voice of the library that was chosen."""
    kind = say("speak.tuned") if voice.kind == "fine-tuned" else say("speak.zero_shot")
    values = (voice.name, kind, say("speak.from_library"), consent_in_words(voice.consent))
    return note(html("<strong>{}</strong>, {}, {}. {}", *values))


def line_to_read() -> Markup:
    """Something to say into the microphone: most sounds of English in a breath."""
    words = '<p class="read-aloud"><span data-word="speak.read_aloud">{}</span> “{}”</p>'
    return html(words, say("speak.read_aloud"), LINE)


def phrase_card(phrase: str) -> Markup:
    """The sentence to read aloud."""
    return says("", html("{} <strong>“{}”</strong>", say("speak.read_aloud"), phrase))


def speaking_line(progress: SpeechProgress) -> Markup:
    """How much of a take has been spoken."""
    part = ""
    if progress.num_segments > 1:
        number = min(progress.segments_done + 1, progress.num_segments)
        part = f", {say('speak.part_of', number=number, total=progress.num_segments)}"
    left = time_left(progress.seconds_left) if math.isfinite(progress.seconds_left) else ""
    said = say("speak.speaking", seconds=f"{progress.seconds_spoken:.1f}", part=part, left=left)
    if progress.doubtful_parts:
        said += f" {say('speak.lost', parts=numbered_parts(progress.doubtful_parts))}"
    return says("", said)


def spoken_line(take: Take) -> Markup:
    """That a take is ready, and how it ended."""
    numbers = [number for number, _ in take.doubtful_parts]
    tone = "good" if take.finish_reason is FinishReason.EOS and not numbers else "mixed"
    ready = html("<strong>{}</strong>", say("speak.ready", number=take.number))
    doubt = f" {say('speak.lost_listen', parts=numbered_parts(numbers))}" if numbers else ""
    return says(tone, html("{} {:.1f} s, {}.{}", ready, take.seconds, say(ENDINGS[take.finish_reason]), doubt))


def not_kept_line(problem: str) -> Markup:
    """That it was spoken, and why it is in no list: while it lies in the player it can be heard again."""
    return says("mixed", html("<strong>{}</strong> {}", say("speak.not_kept"), translated(problem)), role="alert")


def refusal_line(error: EncoreError) -> Markup:
    """Why it does not speak; what a new voice still needs is one press away."""
    button = html('<button type="button" class="quiet" data-open-voice>{}</button>', say("speak.finish"))
    return says("bad", reason(error), more=button if _lacks_consent(error) else "", role="alert")


def _lacks_consent(error: EncoreError) -> bool:
    if isinstance(error, StepsMissing):
        return not {"speak.missing_statement", "speak.missing_who"}.isdisjoint(error.steps)
    return isinstance(error, ConsentMissing | ConsentInvalid)


def part_line(take: Take, number: int) -> Markup:
    """That a part was spoken again, and whether it is better."""
    doubt = take.parts[number - 1].doubt
    spoken = say("speak.part_spoken", number=number, take=take.number)
    better = say("speak.still_lacks") if doubt is not None else ""
    return says("mixed" if doubt is not None else "good", html("<strong>{}</strong> {}", spoken, better))


def likeness_line(take: Take) -> Markup:
    """That a take resembles its recording no more than a stranger does, and what would help."""
    said = say("speak.stranger")
    if take.is_fine_tuned:
        help_ = say("speak.help_more")
    elif take.model_name == EMBEDDED_MODEL:
        said = say("speak.unknown_voice")
        size, seconds = SMALLER_MODEL.num_bytes, SMALLER_MODEL.num_bytes * 8 / ORDINARY_BITS_PER_SECOND
        facts = {"size": size_in_words(size), "time": time_in_words(seconds)}
        help_ = say("speak.help_larger", model=short_name(SMALLER_MODEL.name), **facts)
    else:
        help_ = say("speak.help_tune")
    return says("mixed", html("<strong>{}</strong> {}", said, help_))


def _background(ratio_db: float) -> str:
    if ratio_db < NOISY_RATIO_DB:
        return "speak.background_noisy"
    return "speak.background_quiet" if ratio_db >= VERY_QUIET_RATIO_DB else "speak.background_fair"
