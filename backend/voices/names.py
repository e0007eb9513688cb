"""Names of voices: what is allowed, and when two count as the same."""

from __future__ import annotations

import unicodedata

from backend.voices.errors import VoiceNameInvalid
from training.voice_name import MAX_NAME_LENGTH, begins_name, is_part_of_name


def clean_name(name: str) -> str:
    """Bring a name into the form it is stored in: composed characters, single spaces.

    Raises:
        VoiceNameInvalid: empty, too long, or with characters other than letters, digits and a few signs.
    """
    cleaned = " ".join(unicodedata.normalize("NFC", name).split())
    if not cleaned:
        raise VoiceNameInvalid("A voice needs a name. Enter one.")
    if len(cleaned) > MAX_NAME_LENGTH:
        raise VoiceNameInvalid(
            f"The name has {len(cleaned)} characters; the limit is {MAX_NAME_LENGTH}. Choose a shorter one."
        )
    for character in cleaned:
        if not is_part_of_name(character):
            raise VoiceNameInvalid(
                f"A voice's name cannot contain {character!r}. Use letters, digits, spaces and - _ . ' & ( )."
            )
    if not begins_name(cleaned[0]):
        raise VoiceNameInvalid(f"A voice's name must begin with a letter or a digit, which {cleaned[0]!r} is not.")
    return cleaned


def name_key(name: str) -> str:
    """The form in which two names that sound the same are equal."""
    return unicodedata.normalize("NFKC", " ".join(name.split())).casefold()
