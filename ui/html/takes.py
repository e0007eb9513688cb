"""Takes as cards: their text, their sound, how they were made, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from backend.audio.formats import FORMAT_TABLE
from backend.takes.parts import TakePart
from backend.takes.take import Take
from training.model.generation.frame_loop import FinishReason
from ui.html.messages import note
from ui.html.sound import length_in_words, sound_html
from ui.html.templates import render
from ui.html.words import file_name

NUM_OPEN = 5
"""Older ones are folded away."""

ENDINGS = {
    FinishReason.EOS: "ended by itself",
    FinishReason.LENGTH: "cut off at the length limit: listen to the end, the model may have rambled",
    FinishReason.CANCELLED: "stopped before the end",
}


def take_list(takes: Sequence[tuple[Take, Path]], empty: str = "") -> Markup:
    """Takes in the order given, each with its file, a player, a download and a delete button; `empty` without any."""
    cards = [take_card(*one) for one in takes]
    return render("takes", "take_list", cards=cards, num_open=NUM_OPEN) if takes else note(empty)


def take_card(take: Take, place: Path) -> Markup:
    """One take; `place` is the file to play."""
    how = "Cloned with the transcript" if take.is_in_context else "Cloned from the sound of the voice alone"
    name, length = download_name(take), length_in_words(take.seconds)
    ending = "" if take.finish_reason is FinishReason.EOS else ENDINGS[take.finish_reason]
    return render(
        "takes",
        "card",
        take=take,
        place=place,
        name=name,
        sound=sound_html(place, f"Take {take.number}", voice=take.voice, download=name, length=length),
        ending=ending,
        warning=f"{ending[:1].upper()}{ending[1:]}." if ending else "",
        rate=rate_in_words(take.real_time_factor),
        how="Spoken by a fine-tuned voice," if take.is_fine_tuned else how,
        seeds=list(dict.fromkeys(take.seeds)),
        carries=carried(take),
        doubts=[(number, part, doubt_in_words(part)) for number, part in take.doubtful_parts],
        has_parts=len(take.parts) > 1,
    )


def doubt_in_words(part: TakePart) -> str:
    """Why a part should be listened to."""
    lasts = f"{part.seconds:.1f} s"
    match part.doubt:
        case "lost" if part.heard is not None:
            heard = f" Heard: “{part.heard.text}”" if part.heard.text else ""
            return f"{part.heard.lost_share:.0%} of its letters were not heard.{heard}"
        case "short":
            return f"It may have lost words: {lasts}, where this voice needs about {part.expected_seconds:.1f} s."
        case _:
            return f"Cut off after {lasts}: it may have rambled."


def numbered_parts(numbers: Sequence[int]) -> str:
    """`Part 3`, or `Parts 1, 3 and 4`."""
    if len(numbers) == 1:
        return f"Part {numbers[0]}"
    return f"Parts {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def download_name(take: Take) -> str:
    """What its file is called when it is saved: the voice, the first words, the number."""
    return file_name(take.voice, take.text, f"t{take.number:02}", suffix=FORMAT_TABLE[take.audio_format].suffix)


def carried(take: Take) -> str:
    """What the download says of itself."""
    if take.is_signed:
        said = "The file says, signed, that it is synthetic speech made by Encore."
    elif take.statement is not None and FORMAT_TABLE[take.audio_format].has_comment:
        said = "The file says in its comment tag that it is synthetic speech made by Encore."
    else:
        said = "The file itself does not say that it is synthetic speech."
    return said if take.mark is None else f"{said} Its sound carries Encore's watermark."


def rate_in_words(real_time_factor: float) -> str:
    """Seconds of work per second of speech, and what that means."""
    meaning = "faster than listening" if real_time_factor < 1 else "slower than listening"
    return f"{real_time_factor:.2f} s of work for each second of speech, {meaning}"
