"""Every threshold of the gates, in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from training.former_names import with_current_names

# As jobs of version 0.1 spell them.
_FORMER_NAMES = {
    "shortest_seconds": "min_seconds",
    "longest_seconds": "max_seconds",
    "faintest_speech_dbfs": "min_speech_dbfs",
    "most_clipped_share": "max_clipped_share",
    "least_speech_over_noise_db": "min_speech_over_noise_db",
    "most_silence_share": "max_silence_share",
    "narrowest_bandwidth_hz": "min_bandwidth_hz",
    "most_duplicate_share": "max_duplicate_share",
    "slowest_characters_per_second": "min_characters_per_second",
    "fastest_characters_per_second": "max_characters_per_second",
    "least_confidence": "min_confidence",
    "most_disagreement": "max_disagreement",
    "least_clips_for_speaker": "min_clips_for_speaker",
    "reference_shortest_seconds": "min_reference_seconds",
    "reference_longest_seconds": "max_reference_seconds",
    "most_held_out": "max_held_out",
    "least_to_train_on": "min_clips_to_train_on",
}


@dataclass(frozen=True, kw_only=True)
class SpeakerLimits:
    """When a clip is by another speaker: its cosine distance to the centre of the set is large as such, and unusual.

    Attributes:
        stranger_distance, stranger_deviations: rejected beyond both; deviations are robust standard ones.
        odd_distance, odd_deviations: warned of beyond both.
    """

    stranger_distance: float
    stranger_deviations: float
    odd_distance: float
    odd_deviations: float


class GateSettings(BaseModel):
    """Pairs are (rejected beyond the first, warned beyond the second)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Under a second there is no sentence; beyond 15 s attention and memory suffer and texts drift from the sound.
    min_seconds: PositiveFloat = 1.0
    short_seconds: PositiveFloat = 2.0
    long_seconds: PositiveFloat = 12.0
    max_seconds: PositiveFloat = 15.0

    # Before the loudness is evened out. Speech that quiet brings the microphone's noise along when it is raised.
    min_speech_dbfs: float = -55.0
    quiet_speech_dbfs: float = -42.0

    # Share of samples at full scale: one in a thousand is heard as crackle, one in a hundred is distortion.
    max_clipped_share: PositiveFloat = 0.01
    clipped_share: PositiveFloat = 0.001

    # Voice over background, in dB. Whatever hums behind the voice is learned as part of the voice.
    min_speech_over_noise_db: float = 10.0
    speech_over_noise_db: float = 18.0

    # Pauses teach pauses; most of a clip should be voice.
    max_silence_share: PositiveFloat = 0.75
    silence_share: PositiveFloat = 0.5

    # Telephones end at 3.4 to 4 kHz, wideband calls and old speech engines at 7 to 8 kHz.
    min_bandwidth_hz: PositiveFloat = 4_300.0
    narrow_bandwidth_hz: PositiveFloat = 6_500.0

    # Share of equal bits of two sound fingerprints in the worst half second. The same recording through codecs, cut
    # elsewhere, in noise of 20 dB and over a telephone keeps 0.90. Speech engines repeat themselves more exactly than
    # people: the same sentence by two voices of one engine that differ in little but pitch has 0.82 (by one voice at
    # two sampling rates 0.86), and sentences that differ in a word have 0.70 at most.
    duplicate_similarity: float = Field(default=0.87, gt=0.5, le=1.0)
    # Share of a clip that may be in earlier ones: recordings that were cut in other places share a part.
    max_duplicate_share: float = Field(default=0.6, gt=0, le=1)

    # Letters (and three times the Han and kana characters) per second of sound; slow reading has 8, fast talk 20.
    min_characters_per_second: PositiveFloat = 2.0
    slow_characters_per_second: PositiveFloat = 5.0
    fast_characters_per_second: PositiveFloat = 24.0
    max_characters_per_second: PositiveFloat = 32.0

    # Mean probability the transcriber gives its own words.
    min_confidence: float = Field(default=0.35, ge=0, le=1)
    confidence: float = Field(default=0.6, ge=0, le=1)

    # How far text and hearing differ; see `backend.dataset.verdicts.calibration`. Less is no reason whatever the other
    # clips are like: of clips by speech engines 1 in 40 right texts is above the second, and 9 of 10 of which a
    # quarter is missing; the texts of other clips begin at 0.6.
    max_disagreement: PositiveFloat = 0.55
    disagreement: PositiveFloat = 0.28

    # By the model's own speaker embedding, for clips of earlier versions.
    stranger_distance: PositiveFloat = 0.25
    stranger_deviations: PositiveFloat = 6.0
    odd_distance: PositiveFloat = 0.12
    odd_deviations: PositiveFloat = 4.0
    # By the verifier: chosen with three real speakers mixed in twos, 6 to 55 clips with 1 to 15 of somebody else. The
    # lower limits find 99.6 % of those and 0.3 % of the others, the upper ones 87 % and none. With a fourth person
    # as the speaker it is 99.5 and 1.5 %, and 81 % and none.
    verified_stranger_distance: PositiveFloat = 0.30
    verified_stranger_deviations: PositiveFloat = 2.5
    verified_odd_distance: PositiveFloat = 0.24
    verified_odd_deviations: PositiveFloat = 1.5
    # With fewer clips it is impossible to say which of them is another speaker.
    min_clips_for_speaker: PositiveInt = 4

    # The reference clip is heard before each take: long enough to show the voice, short enough to be cheap.
    min_reference_seconds: PositiveFloat = 5.0
    max_reference_seconds: PositiveFloat = 10.0

    # Held out to evaluate checkpoints with.
    held_out_share: float = Field(default=0.05, ge=0, lt=1)
    max_held_out: PositiveInt = 20
    min_clips_to_train_on: PositiveInt = 3

    @property
    def own_speaker(self) -> SpeakerLimits:
        """For distances by the model's own speaker embedding."""
        return SpeakerLimits(
            stranger_distance=self.stranger_distance,
            stranger_deviations=self.stranger_deviations,
            odd_distance=self.odd_distance,
            odd_deviations=self.odd_deviations,
        )

    @property
    def verified_speaker(self) -> SpeakerLimits:
        """For distances by the verifier."""
        return SpeakerLimits(
            stranger_distance=self.verified_stranger_distance,
            stranger_deviations=self.verified_stranger_deviations,
            odd_distance=self.verified_odd_distance,
            odd_deviations=self.verified_odd_deviations,
        )

    @model_validator(mode="before")
    @classmethod
    def _accept_former_names(cls, raw: Any) -> Any:  # Any: whatever is to be validated
        return with_current_names(raw, _FORMER_NAMES)
