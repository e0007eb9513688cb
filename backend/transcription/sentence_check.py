"""Whether a recording says one given sentence, and not another: for listening to somebody who reads aloud.

A free transcript has to guess what was said. Here the sentence is known: it is laid over the sound, and so are others
that might have been said instead. The sentence was said if the sound fits it well, and fits none of the others better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.transcription.pocketsphinx_transcriber import PlacedText, PocketsphinxTranscriber, words_to_place
from backend.transcription.text_difference import normalise_text
from backend.transcription.transcriber import TRANSCRIBER_HZ

# In nats per frame of 10 ms (see `PlacedWord.cost`), over all of the sound. Chosen with synthetic voices: sentences
# that were said cost 1.6 at most, others 3 and more.
_LARGEST_COST = 2.3
# The same for a word, and for what should be silence. A word that was not said costs 4 and more; a cough is forgiven.
_LARGEST_WORD_COST = 4.5
_LARGEST_SILENCE_COST = 4.5
_SHORTEST_SILENCE_SECONDS = 0.3
_MISREAD_SHARE = 0.15


@dataclass(frozen=True, kw_only=True)
class SentenceHearing:
    """What came of listening for a sentence.

    Attributes:
        is_said: the sentence was said, all of it and nothing else.
        cost: how badly the sound fits the sentence, in nats per frame of 10 ms; infinite where it cannot.
        other: the one of the others that fits better; empty where none does.
        misread: words of the sentence that the sound does not fit.
    """

    is_said: bool
    cost: float
    other: str = ""
    misread: tuple[str, ...] = ()


def hears_sentence(
    listener: PocketsphinxTranscriber,
    samples: NDArray[np.float32],
    sentence: str,
    others: Sequence[str] = (),
    *,
    sample_rate: int = TRANSCRIBER_HZ,
) -> SentenceHearing:
    """Listen whether mono samples (samples,) say the sentence.

    Args:
        listener: loads itself when first used.
        samples: of at most the listener's `piece_seconds`.
        sentence: English.
        others: what might have been said instead, such as the same sentence with one word exchanged; each takes a
            twentieth of the sound's length to check.
        sample_rate: of the samples.
    """
    own = listener.place(samples, words_to_place(sentence), sample_rate=sample_rate)
    if own is None:
        return SentenceHearing(is_said=False, cost=float("inf"))
    cost = _cost_of(own)
    misread = tuple(word.text for word in own.words if word.text and word.cost > _LARGEST_WORD_COST)
    num_words = sum(bool(word.text) for word in own.words)
    speaks_between = any(
        not word.text
        and word.cost > _LARGEST_SILENCE_COST
        and word.end_seconds - word.start_seconds > _SHORTEST_SILENCE_SECONDS
        for word in own.words
    )
    if cost > _LARGEST_COST or len(misread) > _MISREAD_SHARE * num_words or speaks_between:
        return SentenceHearing(is_said=False, cost=cost, misread=misread)
    for other in others:
        if normalise_text(other) != normalise_text(sentence):
            placed = listener.place(samples, words_to_place(other), sample_rate=sample_rate)
            if placed is not None and _cost_of(placed) < cost:
                return SentenceHearing(is_said=False, cost=cost, other=other, misread=misread)
    return SentenceHearing(is_said=True, cost=cost, misread=misread)


def hears_sentence_of(
    listener: PocketsphinxTranscriber,
    samples: NDArray[np.float32],
    sentence: str,
    columns: Sequence[Sequence[str]],
) -> SentenceHearing:
    """Listen whether mono samples (samples,) at TRANSCRIBER_HZ say the sentence, and not another of the same pattern.

    What could be said is one text of each column; of all of it, the sentence has to fit no worse than what fits best.
    """
    nearest = listener.choose(samples, columns)
    if nearest is None:
        return SentenceHearing(is_said=False, cost=float("inf"))
    return hears_sentence(listener, samples, sentence, [nearest])


def _cost_of(placed: PlacedText) -> float:
    return float(placed.frame_costs.mean()) if placed.frame_costs.size else float("inf")
