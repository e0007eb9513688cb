"""Whether a clip should be trained on: each gate is a number, two limits, and a sentence for the user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from backend.dataset.clips.measures import SoundMeasures
from backend.dataset.clips.thresholds import GateSettings, SpeakerLimits

GateName = Literal[
    "length",
    "level",
    "clipping",
    "noise",
    "silence",
    "bandwidth",
    "duplicate audio",
    "duplicate text",
    "text",
    "speaking rate",
    "confidence",
    "disagreement",
    "speaker",
    "failure",
]


class Verdict(StrEnum):
    """What a gate, or all of them together, say about a clip; in order of severity."""

    ACCEPTED = "accepted"
    WARNED = "warned"
    NEEDS_TEXT = "needs your text"
    REJECTED = "rejected"

    @property
    def is_left_out(self) -> bool:
        """Whether such a clip is neither trained on nor compared with others."""
        return self in (Verdict.NEEDS_TEXT, Verdict.REJECTED)

    @property
    def severity(self) -> int:
        """Severity, for comparing."""
        return list(Verdict).index(self)


class GateResult(BaseModel):
    """One gate's answer; `sentence` is empty if there is nothing to say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gate: GateName
    verdict: Verdict
    value: float
    limit: float
    sentence: str = ""


def overall(results: Iterable[GateResult]) -> Verdict:
    """The most severe verdict of all gates."""
    return max((result.verdict for result in results), key=lambda verdict: verdict.severity, default=Verdict.ACCEPTED)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A number with two limits, beyond which a clip is warned of and rejected.

    Attributes:
        direction: whether values below or above the limits are the bad ones.
        rejected: the field of `GateSettings` that holds the limit for rejecting.
        warned: the same for warning.
        sentence: for the user; may name `value`, `kilo` (a thousandth of it), `warned` (the limit) and other facts.
    """

    name: GateName
    direction: Literal["below", "above"]
    rejected: str
    warned: str
    sentence: str

    def check(self, value: float, settings: GateSettings, **facts: str) -> GateResult:
        """The verdict on a value."""
        rejected, warned = (float(getattr(settings, field)) for field in (self.rejected, self.warned))
        sign = -1 if self.direction == "below" else 1
        verdict, limit = Verdict.ACCEPTED, warned
        if sign * value > sign * rejected:
            verdict, limit = Verdict.REJECTED, rejected
        elif sign * value > sign * warned:
            verdict = Verdict.WARNED
        sentence = ""
        if verdict is not Verdict.ACCEPTED:
            sentence = self.sentence.format(value=value, kilo=value / 1000, warned=warned, **facts)
        return GateResult(gate=self.name, verdict=verdict, value=value, limit=limit, sentence=sentence)


def check_range(low: Gate, high: Gate, value: float, settings: GateSettings) -> GateResult:
    """The verdict on a value that may be too low or too high."""
    result = low.check(value, settings)
    return high.check(value, settings) if result.verdict is Verdict.ACCEPTED else result


TOO_SHORT = Gate(
    name="length",
    direction="below",
    rejected="min_seconds",
    warned="short_seconds",
    sentence="Lasts only {value:.1f} s; a sentence needs {warned:g} s or more.",
)
TOO_LONG = Gate(
    name="length",
    direction="above",
    rejected="max_seconds",
    warned="long_seconds",
    sentence="Lasts {value:.1f} s; clips of up to {warned:g} s are learned best.",
)
LEVEL = Gate(
    name="level",
    direction="below",
    rejected="min_speech_dbfs",
    warned="quiet_speech_dbfs",
    sentence="The voice is very quiet ({value:.0f} dBFS); move closer to the microphone.",
)
CLIPPING = Gate(
    name="clipping",
    direction="above",
    rejected="max_clipped_share",
    warned="clipped_share",
    sentence="{value:.1%} of the sound is cut off at full scale and crackles; record at a lower level.",
)
NOISE = Gate(
    name="noise",
    direction="below",
    rejected="min_speech_over_noise_db",
    warned="speech_over_noise_db",
    sentence="The voice is only {value:.0f} dB above the background noise, which would be learned.",
)
SILENCE = Gate(
    name="silence",
    direction="above",
    rejected="max_silence_share",
    warned="silence_share",
    sentence="{value:.0%} of it is silence; the voice would learn to pause like that.",
)
BANDWIDTH = Gate(
    name="bandwidth",
    direction="below",
    rejected="min_bandwidth_hz",
    warned="narrow_bandwidth_hz",
    sentence="There is no sound above {kilo:.1f} kHz, as on a telephone; it would sound muffled.",
)
TOO_SLOW = Gate(
    name="speaking rate",
    direction="below",
    rejected="min_characters_per_second",
    warned="slow_characters_per_second",
    sentence="Only {value:.0f} characters per second; part of what is said may be missing from the text.",
)
TOO_FAST = Gate(
    name="speaking rate",
    direction="above",
    rejected="max_characters_per_second",
    warned="fast_characters_per_second",
    sentence="{value:.0f} characters per second are faster than anyone speaks; the text may say more than the clip.",
)
CONFIDENCE = Gate(
    name="confidence",
    direction="below",
    rejected="min_confidence",
    warned="confidence",
    sentence="The transcript is uncertain ({value:.0%}); listen, and correct the text if necessary.",
)
DUPLICATE_AUDIO = Gate(
    name="duplicate audio",
    direction="above",
    rejected="max_duplicate_share",
    warned="max_duplicate_share",
    sentence="{value:.0%} of this clip duplicates {twin}.",
)


def sound_gates(seconds: float, sound: SoundMeasures, settings: GateSettings) -> list[GateResult]:
    """Everything that can be said about a clip's sound without its text and without the other clips."""
    return [
        check_range(TOO_SHORT, TOO_LONG, seconds, settings),
        LEVEL.check(sound.speech_dbfs, settings),
        CLIPPING.check(sound.clipped_share, settings),
        NOISE.check(sound.speech_over_noise_db, settings),
        SILENCE.check(sound.silence_share, settings),
        BANDWIDTH.check(sound.bandwidth_hz, settings),
    ]


def speaking_rate_gate(text: str, seconds: float, settings: GateSettings) -> GateResult:
    """Whether the text fits the length of the sound: a wrong text is usually too long or too short."""
    return check_range(TOO_SLOW, TOO_FAST, num_spoken_characters(text) / max(seconds, 0.01), settings)


def doubt_gate(doubt: str, confidence: float, settings: GateSettings) -> GateResult:
    """Rejects a transcript that was probably made up; `doubt` says why."""
    return GateResult(
        gate="confidence", verdict=Verdict.REJECTED, value=confidence, limit=settings.min_confidence, sentence=doubt
    )


def duplicate_text_gate(num_before: int) -> GateResult:
    """Warns of a repeated sentence, which would be memorised."""
    return GateResult(
        gate="duplicate text",
        verdict=Verdict.WARNED if num_before else Verdict.ACCEPTED,
        value=num_before,
        limit=0,
        sentence=f"{num_before} earlier clip(s) have the same text." if num_before else "",
    )


def speaker_gate(distance: float, deviations: float, limits: SpeakerLimits) -> GateResult:
    """Whether the voice is that of the other clips; `deviations` is how unusual the distance is in this set."""
    verdict = Verdict.ACCEPTED
    if distance > limits.odd_distance and deviations > limits.odd_deviations:
        verdict = Verdict.WARNED
    if distance > limits.stranger_distance and deviations > limits.stranger_deviations:
        verdict = Verdict.REJECTED
    sentence = {
        Verdict.ACCEPTED: "",
        Verdict.WARNED: f"The voice sounds unlike the other clips (distance {distance:.2f}).",
        Verdict.REJECTED: f"This seems to be another speaker (distance {distance:.2f} to the other clips).",
    }[verdict]
    limit = limits.stranger_distance if verdict is Verdict.REJECTED else limits.odd_distance
    return GateResult(gate="speaker", verdict=verdict, value=distance, limit=limit, sentence=sentence)


def missing_text_gate(problem: str) -> GateResult:
    """Asks for the text of a clip that has none: nothing is wrong with its sound."""
    return GateResult(gate="text", verdict=Verdict.NEEDS_TEXT, value=0, limit=1, sentence=problem)


def failure_gate(problem: str) -> GateResult:
    """Rejects a clip that a stage could not process."""
    return GateResult(gate="failure", verdict=Verdict.REJECTED, value=0, limit=1, sentence=problem)


def num_spoken_characters(text: str) -> int:
    """Letters and digits, with Han, kana and Hangul counted by how long they take to say."""
    return sum(_spoken_length(character) for character in text if character.isalnum())


def _spoken_length(character: str) -> int:
    if "\u3040" <= character <= "\u30ff" or "\uac00" <= character <= "\ud7af":
        return 2  # a mora, or a syllable of two or three letters
    return 3 if "\u3400" <= character <= "\u9fff" else 1
