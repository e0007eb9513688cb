"""What commands write: where it may go, and what is said of a take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from backend.errors import OutputInvalid

if TYPE_CHECKING:
    from backend.takes.take import TakeFacts


def check_output(output: Path, example: str = "take.wav", *, suffix: str | None = None) -> None:
    """Refuse a destination before minutes are spent on its content.

    Args:
        output: file to be written.
        example: a name for it.
        suffix: that its name must end in, such as .wav.

    Raises:
        OutputInvalid: it is a folder, is named otherwise, or lies in a folder that does not exist.
    """
    if output.is_dir():
        raise OutputInvalid(f"{output} is a folder. Name a file to write, such as {output / example}.")
    if suffix is not None and output.suffix.lower() != suffix:
        kind = suffix.removeprefix(".").upper()
        raise OutputInvalid(f"{output} is not named *{suffix}, and {kind} is what is written. Rename the output.")
    if not output.absolute().parent.is_dir():
        raise OutputInvalid(f"The folder {output.absolute().parent} does not exist. Create it first.")


def doubts_of(facts: TakeFacts) -> list[str]:
    """A line for each part of a take that should be listened to."""
    return [
        f"Part {number} of {len(facts.parts)} "
        + ("was cut off and may have rambled" if part.doubt == "rambling" else "may have lost words")
        + f" ({part.seconds:.1f} s, where this voice needs about {part.expected_seconds:.1f} s): {part.text[:80]!r}"
        for number, part in facts.doubtful_parts
    ]
