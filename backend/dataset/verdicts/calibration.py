"""Which given texts are wrong, judged by how far text and hearing differ for this speaker. Pure: no model listens here.

A listener makes errors of its own, few with one voice and many with another. How many, all clips of a build say
together: most of their texts are right. A text is doubted where it differs by more than that. Where right and wrong
texts would look alike, because the listener does not know the voice, nothing is doubted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.dataset.clips.gates import GateResult, Verdict
from backend.dataset.clips.stage_results import CutClip
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import ClipDetails
from backend.transcription.pocketsphinx_transcriber import POCKETSPHINX, unknown_words
from backend.transcription.spoken_words import spoken_words
from backend.transcription.text_difference import compare_letters, compare_texts, letters_of

# What the three signs of a wrong text count for; see `discrepancy`. Chosen with synthetic voices, as all numbers here.
_ERROR_WEIGHT = 1 / 3
_LENGTH_WEIGHT = 1 / 2

# Of right texts, as speech engines read them to pocketsphinx: what one more clip is expected to be like before any is
# heard, and how many clips it takes to outweigh that.
_USUAL_MIDDLE = 0.10
_USUAL_SPREAD = 0.08
_USUAL_CLIPS = 4
# Discrepancies of right texts are skewed: the spread is that between the middle and the third quarter.
_SPREADS_TO_WARN = 2.6
_SPREADS_TO_REJECT = 5.0
_LARGEST_LIMIT = 0.60
# Beyond this a listener understands so little of right texts that it cannot tell them from wrong ones.
_LARGEST_MIDDLE = 0.45
# Limits are rounded, so that one clip more does not change what is stored of all others.
_DIGITS = 2


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What a listener's errors with one speaker are like.

    Attributes:
        warned_beyond, rejected_beyond: discrepancies up to which a text is accepted, and then warned of.
        can_judge: false where the listener knows the voice too little to accuse any text.
    """

    warned_beyond: float
    rejected_beyond: float
    can_judge: bool

    def judge(self, value: float) -> Verdict:
        """The verdict on a text with this discrepancy."""
        if not self.can_judge or value <= self.warned_beyond:
            return Verdict.ACCEPTED
        return Verdict.REJECTED if value > self.rejected_beyond else Verdict.WARNED


def judge_texts(clips: Sequence[ClipDetails], settings: GateSettings) -> list[GateResult | None]:
    """The gate on text and hearing for all clips of a speaker; None where nobody heard them, or too badly to judge."""
    calibrations = calibrate_listeners(clips, settings)
    return [_gate(clip, calibrations) for clip in clips]


def calibrate_listeners(clips: Sequence[ClipDetails], settings: GateSettings) -> dict[str, Calibration]:
    """What is usual for each transcriber that heard some of the clips."""
    values: dict[str, list[float]] = defaultdict(list)
    for clip in clips:
        if clip.discrepancy is not None:
            values[clip.current.transcriber].append(clip.discrepancy)
    return {transcriber: calibrate(found, settings) for transcriber, found in values.items()}


def understood_too_little(clips: Sequence[ClipDetails], settings: GateSettings) -> list[str]:
    """Transcribers that know the voice too little for a verdict on any text."""
    return [name for name, found in calibrate_listeners(clips, settings).items() if not found.can_judge]


def calibrate(discrepancies: Sequence[float], settings: GateSettings) -> Calibration:
    """Find what is usual for a speaker, of whose texts most are right; with few clips what is usual for anybody."""
    values = np.asarray(discrepancies, np.float64)
    middle, spread = _USUAL_MIDDLE, _USUAL_SPREAD
    if len(values):
        own_middle, own_quarter = np.quantile(values, [0.5, 0.75])
        own = len(values) / (len(values) + _USUAL_CLIPS)
        middle += own * (float(own_middle) - middle)
        spread += own * (float(own_quarter - own_middle) - spread)
    warned = max(min(middle + _SPREADS_TO_WARN * spread, _LARGEST_LIMIT), settings.disagreement)
    rejected = max(middle + _SPREADS_TO_REJECT * spread, warned, settings.max_disagreement)
    return Calibration(
        warned_beyond=round(warned, _DIGITS),
        rejected_beyond=round(rejected, _DIGITS),
        can_judge=middle <= _LARGEST_MIDDLE,
    )


def discrepancy_of(clip: CutClip, text: str) -> float | None:
    """How much what was heard in a clip speaks against a text; None where nobody heard it, or only guessed."""
    language = clip.language or "en"
    if clip.heard is None or not letters_of(text, language) or (clip.doubt and letters_of(clip.heard, language)):
        return None
    return discrepancy(text, clip.heard, clip.heard_words, language, _unjudged(clip, text))


def discrepancy(
    text: str,
    heard: str,
    heard_words: Sequence[tuple[str, float]],
    language: str = "en",
    unjudged: frozenset[str] = frozenset(),
) -> float:
    """0 where text and hearing agree, about 1 for the text of another clip.

    The sum of three signs: wrong letters the listener was sure of, which mishearing seldom has; wrong letters; and how
    much more, or less, was heard than the text has, which mishearing hardly changes and a missing word does.

    Args:
        text: as it was given.
        heard: as it was heard.
        heard_words: its words, with how sure the listener was of each, 0 to 1.
        language: of both, as a code.
        unjudged: words of the text, as `spoken_words` shows them, that the listener's dictionary lacks.
    """
    found = compare_letters(text, heard, language, unjudged=unjudged)
    if not found.num_expected and unjudged:
        return 0.0
    num_letters = max(found.num_expected, 1)
    sureness = _sureness_of_letters(heard_words, len(found.heard), language)
    sure = sum(
        # What was not heard lies between two letters that were.
        float(sureness[max(edit.dest_pos - 1, 0)] + sureness[edit.dest_pos]) / 2
        if edit.tag == "delete"
        else float(sureness[edit.dest_pos])
        for edit in found.edits
    )
    excess = abs(found.num_heard / num_letters - 1)
    return (sure + _ERROR_WEIGHT * len(found.edits)) / num_letters + _LENGTH_WEIGHT * excess


def _sureness_of_letters(words: Sequence[tuple[str, float]], num_letters: int, language: str) -> NDArray[np.float64]:
    """How sure a listener was of each of its letters (letters + 1,): the last stands for what comes after."""
    of_words = [sureness for word, sureness in words for _ in range(len(letters_of(word, language)))] or [1.0]
    # Numbers may be compared in another reading than the likeliest: the same share of the way.
    places = np.arange(num_letters) * len(of_words) // max(num_letters, 1)
    return np.append(np.asarray(of_words)[places], of_words[-1]) if num_letters else np.ones(1)


def _gate(clip: ClipDetails, calibrations: dict[str, Calibration]) -> GateResult | None:
    calibration = calibrations.get(clip.current.transcriber)
    if clip.discrepancy is None or calibration is None or not calibration.can_judge:
        return None
    verdict = calibration.judge(clip.discrepancy)
    return GateResult(
        gate="disagreement",
        verdict=verdict,
        value=clip.discrepancy,
        limit=calibration.rejected_beyond if verdict is Verdict.REJECTED else calibration.warned_beyond,
        sentence="" if verdict is Verdict.ACCEPTED else _sentence(clip.current, clip.text),
    )


def _sentence(clip: CutClip, text: str) -> str:
    language, heard = clip.language or "en", clip.heard or ""
    if not letters_of(heard, language):
        return "No words were heard here. Listen, and correct the text."
    found = compare_texts(text, heard, language, unjudged=_unjudged(clip, text)).describe()
    return f"{found[:1].upper()}{found[1:]}. Listen, and correct the text if need be."


def _unjudged(clip: CutClip, text: str) -> frozenset[str]:
    """Words of a text that whoever listened cannot know: names, mostly."""
    if clip.transcriber != POCKETSPHINX:
        return frozenset()
    return unknown_words(word.shown for word in spoken_words(text))
