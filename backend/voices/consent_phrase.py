"""The phrases that people read aloud to give consent: how one is drawn, and which of its words were heard."""

from __future__ import annotations

import secrets

from backend.transcription.text_difference import letters_of, num_letter_errors

STATEMENT = "I agree that my voice is cloned."

# In the order in which they are said. Everyday words that differ in most of their letters: whoever spells a word
# wrongly, as small transcribers do, still writes what resembles no other of the same column.
COLUMNS: tuple[tuple[str, ...], ...] = tuple(
    tuple(words.split("|"))
    for words in (
        "The old sailor|A young doctor|The tall gardener|Our new teacher|The busy baker|My little brother"
        "|The happy farmer|His first captain",
        "painted|carried|collected|counted|forgot|remembered|delivered|polished",
        "seven|nine|twenty|forty|two hundred|a thousand|half a million|three dozen",
        "silver|golden|broken|purple|expensive|dusty|orange|plastic",
        "baskets|ladders|bicycles|envelopes|violins|diamonds|pictures|potatoes",
        "near the river|under the bridge|before breakfast|in the harbour|behind the station|on Sunday morning"
        "|after the concert|across the garden",
    )
)


def draw_phrase() -> str:
    """Draw a phrase to read aloud: the agreement, and one of a quarter of a million sentences."""
    return _phrase([secrets.choice(column) for column in COLUMNS])


def error_rate(phrase: str, heard: str) -> float:
    """Letter errors per letter of the phrase, without regard to spaces, case and punctuation.

    Not word errors: a transcriber that joins two words, or spells one as it sounds, has heard all of it.
    """
    return num_letter_errors(phrase, heard) / len(letters_of(phrase))


def statement_error_rate(heard: str) -> float:
    """The same for the agreement alone, which comes first."""
    letters = letters_of(heard)
    return min(error_rate(STATEMENT, letters[:end]) for end in range(len(letters) + 1))


def num_misheard_words(phrase: str, heard: str) -> int:
    """How many of the drawn words match what was heard no better than another word that could have been drawn.

    Of a phrase that was not drawn here, all are.
    """
    words = _drawn_words(phrase)
    if words is None:
        return len(COLUMNS)
    num_errors = num_letter_errors(phrase, heard)
    num_misheard = 0
    for position, column in enumerate(COLUMNS):
        others = [_phrase([*words[:position], other, *words[position + 1 :]]) for other in column]
        least = min(num_letter_errors(other, heard) for other in others if other != phrase)
        num_misheard += num_errors >= least
    return num_misheard


def may_be_drawn(phrase: str) -> bool:
    """Whether the phrase is one of those that are drawn here."""
    return _drawn_words(phrase) is not None


def _phrase(words: list[str]) -> str:
    return f"{STATEMENT} {' '.join(words)}."


def _drawn_words(phrase: str) -> list[str] | None:
    """What was drawn of each column; None when this phrase was not drawn."""
    rest, words = phrase.removeprefix(STATEMENT).strip(), []
    for column in COLUMNS:
        word = next((word for word in column if rest.startswith(word)), None)
        if word is None:
            return None
        words.append(word)
        rest = rest.removeprefix(word).lstrip()
    return words if _phrase(words) == phrase else None
