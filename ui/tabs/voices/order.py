"""What was pressed on a card: `orders.js` writes it into a hidden field."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ui.fields import FormIncomplete
from ui.words.words import say


class Order(BaseModel):
    """A button, and what it belongs to.

    Attributes:
        do: which button.
        id: of the voice, the run, or the thing in the trash.
        name: what a voice is to be called.
        at: tells the same order twice from one that arrives twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    do: Literal["rename", "export", "delete", "undo", "purge", "tune", "free", "restore", "empty"]
    id: str = ""
    name: str = ""
    at: float = 0.0

    @classmethod
    def read(cls, written: str) -> Order:
        """From the field. Raises FormIncomplete where it is none."""
        try:
            return cls.model_validate_json(written)
        except ValidationError as error:
            raise FormIncomplete(say("voices.press_again")) from error
