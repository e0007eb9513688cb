"""Rules for styles: a word of the user's for how something is said, such as calm, excited or whisper."""

from __future__ import annotations

from training.voice_name import begins_name, is_part_of_name

MAX_STYLE_LENGTH = 40


def clean_style(word: str) -> str:
    """The word as it is stored and compared: in lower case, with single spaces; empty for no style.

    Raises:
        ValueError: it is too long, or has characters that no name has.
    """
    style = " ".join(word.split()).lower()
    if style and (len(style) > MAX_STYLE_LENGTH or not begins_name(style[0]) or not all(map(is_part_of_name, style))):
        raise ValueError(
            f"{style[:60]!r} cannot be a style. Use a word such as calm or excited: at most {MAX_STYLE_LENGTH} "
            "letters, digits, spaces and - _ . ' & ( ), no mark first."
        )
    return style
