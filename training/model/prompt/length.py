"""The maximum duration of a text, which stops a runaway take.

A model that misses its end of speech babbles or hums until it is stopped. A tight cap would cut slow speakers off, so
the cap is about three times the duration of ordinary speech in each script.
"""

from __future__ import annotations

import math
import unicodedata

FRAMES_PER_SECOND = 12.5
"""Frame rate of the public tokenizer's codes; `SpeechTokenizerConfig` reads no other kind."""

FIXED_FRAMES = 25
"""Two seconds for silence at both ends and for very short texts."""

FRAMES_PER_LETTER = 2.7
"""Alphabets: speech runs at 12 to 15 letters a second, about 0.9 frames each."""

FRAMES_PER_DIGIT = 12.0
"""A digit stands for a word or more ("1,777,777" is read out in full)."""

FRAMES_PER_IDEOGRAPH = 9.0
"""Chinese characters and kanji: four to five a second."""

FRAMES_PER_SYLLABLE = 7.0
"""Hangul blocks and kana: a syllable each, five to eight a second."""

FRAMES_PER_MARK = 6.0
"""Punctuation may be a pause, symbols ("%", "€") are words."""

ORDINARY_PACE = 1 / 3
"""Of ordinary speech, in frames for each frame that a text may take at most; see `frame_cap`."""

SLOW_LANGUAGES = {"german": 1.2, "russian": 1.2, "italian": 1.1, "portuguese": 1.1}
"""Languages that take longer to say per letter."""


def frame_cap(text: str, language: str = "auto", *, longest: int = 2048) -> int:
    """Largest number of 80 ms frames a text may take.

    Args:
        text: the text to speak.
        language: name of the language, or `auto`.
        longest: cap of the checkpoint, from its generation settings.

    Returns:
        At least FIXED_FRAMES, at most `longest`.
    """
    frames = sum(_frames_of(character) for character in text) * SLOW_LANGUAGES.get(language.lower(), 1.0)
    return min(FIXED_FRAMES + math.ceil(frames), longest)


def expected_seconds(text: str, language: str = "auto", pace: float = ORDINARY_PACE) -> float:
    """How long a text lasts at a pace, in frames for each frame that it may take at most; at least 0.1."""
    frames = frame_cap(text, language, longest=1_000_000) - FIXED_FRAMES
    return max(frames * pace / FRAMES_PER_SECOND, 0.1)


def _frames_of(character: str) -> float:
    if character.isspace():
        return FRAMES_PER_LETTER
    category = unicodedata.category(character)
    if category.startswith("N"):
        return FRAMES_PER_DIGIT
    if category == "Lo":
        name = unicodedata.name(character, "")
        if name.startswith("CJK"):
            return FRAMES_PER_IDEOGRAPH
        if name.startswith(("HANGUL", "HIRAGANA", "KATAKANA")):
            return FRAMES_PER_SYLLABLE
    if category.startswith(("P", "S")):
        return FRAMES_PER_MARK
    return FRAMES_PER_LETTER
