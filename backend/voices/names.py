"""What a voice may be called."""

from __future__ import annotations

import unicodedata

from backend.voices.errors import VoiceNameInvalid
from training.voice_name import MAX_NAME_LENGTH, begins_name, is_part_of_name


def clean_name(name: str) -> str:
    """Bring a name into the form it is stored in: composed characters, single spaces.

    Raises:
        VoiceNameInvalid: empty, too long, or with characters that are no letters, digits or joiners of words.
    """
    cleaned = " ".join(unicodedata.normalize("NFC", name).split())
    if not cleaned:
        raise VoiceNameInvalid("A voice needs a name. Write one.")
    if len(cleaned) > MAX_NAME_LENGTH:
        raise VoiceNameInvalid(
            f"The name has {len(cleaned)} characters; {MAX_NAME_LENGTH} are the most. Choose a shorter one."
        )
    for character in cleaned:
        if not is_part_of_name(character):
            raise VoiceNameInvalid(
                f"A voice's name cannot hold {character!r}. Use letters, digits, spaces and - _ . ' & ( )."
            )
    if not begins_name(cleaned[0]):
        raise VoiceNameInvalid(f"A voice's name begins with a letter or a digit, which {cleaned[0]!r} is not.")
    return cleaned


def name_key(name: str) -> str:
    """What two names share when a listener would take them for the same."""
    return unicodedata.normalize("NFKC", " ".join(name.split())).casefold()
