"""Whether a text can be spoken at all, which is known without a model."""

from __future__ import annotations

from backend.errors import PromptError
from backend.serving.speech.sayable import MAX_UNSAID, count_sayable

MAX_TEXT_LENGTH = 100_000
"""Characters; about two hours of speech."""


def check_text(text: str) -> None:
    """Refuse what no model can speak. Raises PromptError."""
    if len(text) > MAX_TEXT_LENGTH:
        raise PromptError(f"The text has {len(text)} characters; the limit is {MAX_TEXT_LENGTH}. Split it.")
    if not text.strip():
        raise PromptError("There is no text to speak. Write at least one word.")
    num_said, num_unsaid = count_sayable(text)
    if not num_said:
        raise PromptError("Nothing in the text can be said: it has no letter and no digit. Write at least one word.")
    if num_unsaid > num_said + MAX_UNSAID:
        raise PromptError(
            f"{num_unsaid} of the text's {len(text)} characters cannot be said: dots and other signs, invisible or "
            "combining characters. Leave most of them out."
        )
