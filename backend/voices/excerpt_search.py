"""Finds the first sentences of a recording, and what they say.

An excerpt ends in a pause. Which words are said before it is found by laying beginnings of the transcript over the
sound: too many words find no room, and after too few some speech is left. Nothing is recognised, so the words are those
of the transcript, as they are written there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.audio.span import Span
from backend.audio.voice_activity import VOICE_ACTIVITY_HZ, find_speech
from backend.transcription.pocketsphinx_transcriber import (
    PlacedText,
    PlacedWord,
    PocketsphinxTranscriber,
    words_to_place,
)
from backend.voices.excerpt import Excerpt

MIN_EXCERPT_SECONDS = 3.0
"""Shorter references say too little about a voice."""

_SENTENCE_ENDS = tuple(".!?\u2026")
_PHRASE_ENDS = tuple(",;:\u2014")
_CLOSING_MARKS = "\"')]\u201d\u2019\u00bb"
# By how much an excerpt may be shorter than another if it ends where the text does, in seconds.
_SENTENCE_BONUS, _PHRASE_BONUS = 4.0, 2.0
# After the last word before a pause, as far as the pause lasts.
_TAIL_SECONDS = 0.25
# Nobody speaks evenly: by how much the words of an excerpt may be more or fewer than its share of the recording.
_UNEVEN_RATIO, _UNEVEN_SECONDS = 0.3, 2.0
# By how much a word and the speech that it begins or ends may differ.
_SAME_MOMENT_SECONDS = 0.3
# How much nearer a number of words is at which a sentence ends, in letters.
_SENTENCE_LETTERS = 25.0
# Each takes some 0.4 s.
_MAX_TRIES, _MAX_PAUSES = 10, 3
_FEW_WORDS = 2
# Nobody speaks so fast; of a long transcript no more is looked at.
_MAX_WORDS_PER_SECOND = 10.0
# Of `PlacedWord.cost`. Between two pauses it is 2.2 at most where the words are right, of any three words 4.3; where a
# sentence is another, 5 and 7.
_MAX_STRETCH_COST, _MAX_WORDS_COST, _NUM_WORDS_TOGETHER = 3.0, 5.5, 3


@dataclass(frozen=True, kw_only=True)
class _Beginning:
    """A beginning of the transcript: as it stands there, and how welcome its end is."""

    text: str
    bonus_seconds: float


def search_excerpt(sound: NDArray[np.float32], transcript: str, *, max_seconds: float) -> Excerpt | None:
    """The beginning of mono samples (samples,) at VOICE_ACTIVITY_HZ that is long, and ends with a sentence.

    None if it is not sure what is said until any pause within `max_seconds`. Holds Python's interpreter for most of a
    second or two, and several times that where nothing fits.
    """
    speech = find_speech([sound])
    words = words_to_place(transcript)
    beginnings = _beginnings(transcript, words, round(_MAX_WORDS_PER_SECOND * max_seconds))
    sentence_ends = {number for number, one in beginnings.items() if one.bonus_seconds == _SENTENCE_BONUS}
    every = (
        Span(start_seconds=before.end_seconds, end_seconds=after.start_seconds)
        for before, after in itertools.pairwise(speech)
    )
    pauses = [pause for pause in every if MIN_EXCERPT_SECONDS <= _cut_seconds(pause) <= max_seconds]
    listener = PocketsphinxTranscriber()
    for number in range(len(pauses), 0, -1)[:_MAX_PAUSES]:
        piece = sound[: round(_cut_seconds(pauses[number - 1]) * VOICE_ACTIVITY_HZ)]
        placed = _lay_over(listener, piece, words, speech, sentence_ends)
        ends = ((pause, _num_words_before(placed, pause)) for pause in pauses[:number] if placed)
        found = [(pause, beginnings[num_words]) for pause, num_words in ends if num_words in beginnings]
        if found:
            pause, beginning = max(found, key=lambda one: _cut_seconds(one[0]) + one[1].bonus_seconds)
            return Excerpt(seconds=_cut_seconds(pause), transcript=beginning.text)
    return None


def _cut_seconds(pause: Span) -> float:
    """Where to cut in a pause."""
    return min(pause.start_seconds + _TAIL_SECONDS, pause.middle_seconds)


def _beginnings(transcript: str, words: Sequence[str], max_words: int) -> dict[int, _Beginning]:
    """The beginnings of a transcript by their number of words as they are said."""
    found: dict[int, _Beginning] = {}
    end = 0
    for chunk in transcript.split():
        end = transcript.index(chunk, end) + len(chunk)
        own = words_to_place(transcript[:end])
        if len(own) > max_words:
            break
        # Numbers and abbreviations may be read otherwise without what follows.
        if own == words[: len(own)]:
            mark = chunk.rstrip(_CLOSING_MARKS)
            bonus = _SENTENCE_BONUS if mark.endswith(_SENTENCE_ENDS) else 0.0
            bonus = _PHRASE_BONUS if mark.endswith(_PHRASE_ENDS) else bonus
            found[len(own)] = _Beginning(text=transcript[:end].strip(), bonus_seconds=bonus)
    return found


def _lay_over(
    listener: PocketsphinxTranscriber,
    piece: NDArray[np.float32],
    words: Sequence[str],
    speech: Sequence[Span],
    sentence_ends: Collection[int],
) -> list[PlacedWord]:
    """As many of the words over a piece of sound as are said in it; none unless they fit everywhere.

    Args:
        listener: lays them.
        piece: the beginning of a recording, which ends in a pause.
        words: of the whole transcript.
        speech: of the whole recording.
        sentence_ends: numbers of words after which a sentence ends, as the piece probably does.
    """
    if not words:
        return []
    letters = np.cumsum([len(word) for word in words])
    letters_per_second = letters[-1] / _seconds(speech)
    own = [span for span in speech if span.end_seconds <= len(piece) / VOICE_ACTIVITY_HZ]
    expected = letters_per_second * _seconds(own)
    margin = letters_per_second * (_UNEVEN_RATIO * _seconds(own) + _UNEVEN_SECONDS)
    untried = {number for number in range(1, len(words) + 1) if abs(letters[number - 1] - expected) <= margin}
    best_cost, best_number, best = math.inf, 0, None
    for _ in range(_MAX_TRIES):
        # Once some fit, perhaps a few words more or less fit better.
        near = range(best_number - _FEW_WORDS, best_number + _FEW_WORDS + 1)
        choices = untried if best is None else untried.intersection(near)
        if not choices or best_number in sentence_ends:
            break
        number = min(
            choices, key=lambda one: abs(letters[one - 1] - expected) - _SENTENCE_LETTERS * (one in sentence_ends)
        )
        untried.discard(number)
        placed = listener.place(piece, words[:number], sample_rate=VOICE_ACTIVITY_HZ)
        if placed is None or sum(bool(word.text) for word in placed.words) != number:
            # No room, or a word that nobody can pronounce: then it is not sure which of the others is the last.
            continue
        last_seconds = max(word.end_seconds for word in placed.words if word.text)
        if own[-1].end_seconds - last_seconds > _SAME_MOMENT_SECONDS:
            # What follows was taken for noise.
            left = [
                Span(start_seconds=max(span.start_seconds, last_seconds), end_seconds=span.end_seconds)
                for span in own
                if span.end_seconds > last_seconds
            ]
            expected = letters[number - 1] + letters_per_second * _seconds(left)
        elif (cost := float(placed.frame_costs.mean())) < best_cost:
            best_cost, best_number, best = cost, number, placed
    return [word for word in best.words if word.text] if best is not None and _fits(best, own) else []


def _fits(placed: PlacedText, speech: Iterable[Span]) -> bool:
    """Whether words laid over speech fit in each stretch of it, and wherever a few are together."""
    stretches = [placed.frame_costs[round(100 * one.start_seconds) : round(100 * one.end_seconds)] for one in speech]
    costs = np.array([word.cost for word in placed.words if word.text])
    together = np.convolve(costs, np.full(_NUM_WORDS_TOGETHER, 1 / _NUM_WORDS_TOGETHER), mode="valid")
    return bool(
        all(stretch.size and stretch.mean() <= _MAX_STRETCH_COST for stretch in stretches)
        and together.max(initial=costs.mean()) <= _MAX_WORDS_COST
    )


def _num_words_before(placed: Sequence[PlacedWord], pause: Span) -> int | None:
    """How many of some words are said before a pause; None where that is not sure."""
    before = [word for word in placed if word.start_seconds < pause.middle_seconds]
    after = placed[len(before) : len(before) + 1]
    is_sure = (
        bool(before)
        and abs(before[-1].end_seconds - pause.start_seconds) <= _SAME_MOMENT_SECONDS
        and all(abs(word.start_seconds - pause.end_seconds) <= _SAME_MOMENT_SECONDS for word in after)
    )
    return len(before) if is_sure else None


def _seconds(speech: Iterable[Span]) -> float:
    return sum(span.seconds for span in speech)
