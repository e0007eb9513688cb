"""Whether a clip should be trained on: each gate is a number, a limit, and a sentence for whoever recorded it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from backend.dataset.clips.measures import SoundMeasures
from backend.dataset.clips.thresholds import GateSettings

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
    """What a gate, or all of them together, say about a clip; in order of weight."""

    ACCEPTED = "accepted"
    WARNED = "warned"
    REJECTED = "rejected"

    @property
    def weight(self) -> int:
        """For comparing: the heavier verdict wins."""
        return list(Verdict).index(self)


class GateResult(BaseModel):
    """One gate's answer; `sentence` is empty where there is nothing to say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gate: GateName
    verdict: Verdict
    value: float
    limit: float
    sentence: str = ""


def overall(results: Iterable[GateResult]) -> Verdict:
    """The heaviest verdict of all gates."""
    found = [result.verdict for result in results]
    return next((verdict for verdict in (Verdict.REJECTED, Verdict.WARNED) if verdict in found), Verdict.ACCEPTED)


def sound_gates(seconds: float, sound: SoundMeasures, settings: GateSettings) -> list[GateResult]:
    """Everything that can be said about a clip's sound without its text and without the other clips."""
    return [
        length_gate(seconds, settings),
        level_gate(sound.speech_dbfs, settings),
        clipping_gate(sound.clipped_share, settings),
        noise_gate(sound.speech_over_noise_db, settings),
        silence_gate(sound.silence_share, settings),
        bandwidth_gate(sound.bandwidth_hz, settings),
    ]


def length_gate(seconds: float, settings: GateSettings) -> GateResult:
    """Neither a syllable nor a speech."""
    if seconds < settings.short_seconds:
        return _low(
            "length",
            seconds,
            rejected=settings.min_seconds,
            warned=settings.short_seconds,
            sentence=f"Lasts only {seconds:.1f} s; a sentence needs {settings.short_seconds:g} s or more.",
        )
    return _high(
        "length",
        seconds,
        rejected=settings.max_seconds,
        warned=settings.long_seconds,
        sentence=f"Lasts {seconds:.1f} s; clips of up to {settings.long_seconds:g} s are learned best.",
    )


def level_gate(speech_dbfs: float, settings: GateSettings) -> GateResult:
    """The microphone was close enough."""
    return _low(
        "level",
        speech_dbfs,
        rejected=settings.min_speech_dbfs,
        warned=settings.quiet_speech_dbfs,
        sentence=f"The voice is very quiet ({speech_dbfs:.0f} dBFS); move closer to the microphone.",
    )


def clipping_gate(clipped_share: float, settings: GateSettings) -> GateResult:
    """The microphone was not too close."""
    return _high(
        "clipping",
        clipped_share,
        rejected=settings.max_clipped_share,
        warned=settings.clipped_share,
        sentence=f"{clipped_share:.1%} of the sound is cut off at full scale and crackles; record at a lower level.",
    )


def noise_gate(speech_over_noise_db: float, settings: GateSettings) -> GateResult:
    """The voice stands out of its background."""
    return _low(
        "noise",
        speech_over_noise_db,
        rejected=settings.min_speech_over_noise_db,
        warned=settings.speech_over_noise_db,
        sentence=f"The voice is only {speech_over_noise_db:.0f} dB above the background noise, which would be learned.",
    )


def silence_gate(silence_share: float, settings: GateSettings) -> GateResult:
    """Most of the clip is voice."""
    return _high(
        "silence",
        silence_share,
        rejected=settings.max_silence_share,
        warned=settings.silence_share,
        sentence=f"{silence_share:.0%} of it is silence; the voice would learn to pause like that.",
    )


def bandwidth_gate(bandwidth_hz: float, settings: GateSettings) -> GateResult:
    """The recording is not a telephone call, whatever its file says."""
    return _low(
        "bandwidth",
        bandwidth_hz,
        rejected=settings.min_bandwidth_hz,
        warned=settings.narrow_bandwidth_hz,
        sentence=f"There is no sound above {bandwidth_hz / 1000:.1f} kHz, as on a telephone; it would sound muffled.",
    )


def speaking_rate_gate(text: str, seconds: float, settings: GateSettings) -> GateResult:
    """The text fits the length of the sound: a wrong text is mostly too long or too short."""
    rate = num_spoken_characters(text) / max(seconds, 0.01)
    if rate < settings.slow_characters_per_second:
        return _low(
            "speaking rate",
            rate,
            rejected=settings.min_characters_per_second,
            warned=settings.slow_characters_per_second,
            sentence=f"{rate:.0f} characters per second are few; some of what is said may be missing from the text.",
        )
    return _high(
        "speaking rate",
        rate,
        rejected=settings.max_characters_per_second,
        warned=settings.fast_characters_per_second,
        sentence=f"{rate:.0f} characters per second are more than anybody says; the text may hold too much.",
    )


def confidence_gate(confidence: float, settings: GateSettings) -> GateResult:
    """The transcriber believes its own words."""
    return _low(
        "confidence",
        confidence,
        rejected=settings.min_confidence,
        warned=settings.confidence,
        sentence=f"The transcript is uncertain ({confidence:.0%}); listen, and correct the text if need be.",
    )


def doubt_gate(doubt: str, confidence: float, settings: GateSettings) -> GateResult:
    """The transcriber was not making it up; `doubt` says what looks like it."""
    return GateResult(
        gate="confidence", verdict=Verdict.REJECTED, value=confidence, limit=settings.min_confidence, sentence=doubt
    )


def disagreement_gate(disagreement: float, settings: GateSettings) -> GateResult:
    """The given text is what a transcriber hears."""
    return _high(
        "disagreement",
        disagreement,
        rejected=settings.max_disagreement,
        warned=settings.disagreement,
        sentence=f"The given text and what is heard differ in {disagreement:.0%} of the characters; compare them.",
    )


def duplicate_audio_gate(share: float, twin: str, settings: GateSettings) -> GateResult:
    """Nothing is learned twice; `twin` says where most of the clip was heard before."""
    return _high(
        "duplicate audio",
        share,
        rejected=settings.max_duplicate_share,
        warned=settings.max_duplicate_share,
        sentence=f"{share:.0%} of this sound is already there: {twin}.",
    )


def duplicate_text_gate(num_before: int) -> GateResult:
    """A sentence said often is learned by heart."""
    return GateResult(
        gate="duplicate text",
        verdict=Verdict.WARNED if num_before else Verdict.ACCEPTED,
        value=num_before,
        limit=0,
        sentence=f"The same text is said in {num_before} earlier clip(s)." if num_before else "",
    )


def speaker_gate(distance: float, deviations: float, settings: GateSettings) -> GateResult:
    """The voice is that of the other clips; `deviations` says how unusual the distance is in this set."""
    verdict = Verdict.ACCEPTED
    if distance > settings.odd_distance and deviations > settings.odd_deviations:
        verdict = Verdict.WARNED
    if distance > settings.stranger_distance and deviations > settings.stranger_deviations:
        verdict = Verdict.REJECTED
    sentence = {
        Verdict.ACCEPTED: "",
        Verdict.WARNED: f"The voice sounds unlike the other clips (distance {distance:.2f}).",
        Verdict.REJECTED: f"This seems to be another speaker (distance {distance:.2f} to the other clips).",
    }[verdict]
    limit = settings.stranger_distance if verdict is Verdict.REJECTED else settings.odd_distance
    return GateResult(gate="speaker", verdict=verdict, value=distance, limit=limit, sentence=sentence)


def missing_text_gate(problem: str) -> GateResult:
    """There is no text, and why."""
    return GateResult(gate="text", verdict=Verdict.REJECTED, value=0, limit=1, sentence=problem)


def failure_gate(problem: str) -> GateResult:
    """A stage could not deal with the clip, and why."""
    return GateResult(gate="failure", verdict=Verdict.REJECTED, value=0, limit=1, sentence=problem)


def num_spoken_characters(text: str) -> int:
    """Letters and digits, with Han, kana and Hangul counted by how long they take to say."""
    return sum(_spoken_length(character) for character in text if character.isalnum())


def _spoken_length(character: str) -> int:
    if "\u3040" <= character <= "\u30ff" or "\uac00" <= character <= "\ud7af":
        return 2  # a mora, or a syllable of two or three letters
    return 3 if "\u3400" <= character <= "\u9fff" else 1


def _low(gate: GateName, value: float, *, rejected: float, warned: float, sentence: str) -> GateResult:
    if value < rejected:
        return GateResult(gate=gate, verdict=Verdict.REJECTED, value=value, limit=rejected, sentence=sentence)
    if value < warned:
        return GateResult(gate=gate, verdict=Verdict.WARNED, value=value, limit=warned, sentence=sentence)
    return GateResult(gate=gate, verdict=Verdict.ACCEPTED, value=value, limit=warned)


def _high(gate: GateName, value: float, *, rejected: float, warned: float, sentence: str) -> GateResult:
    if value > rejected:
        return GateResult(gate=gate, verdict=Verdict.REJECTED, value=value, limit=rejected, sentence=sentence)
    if value > warned:
        return GateResult(gate=gate, verdict=Verdict.WARNED, value=value, limit=warned, sentence=sentence)
    return GateResult(gate=gate, verdict=Verdict.ACCEPTED, value=value, limit=warned)
