"""Takes as cards: their text, their sound, how they were made, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from backend.audio.formats import FORMAT_TABLE
from backend.takes.parts import TakePart
from backend.takes.take import Take
from training.model.generation.finish_reason import FinishReason
from training.model.hub.hub import short_name
from ui.html.messages import note
from ui.html.sound import length_in_words, sound_html
from ui.html.templates import render
from ui.html.words import file_name
from ui.words.words import say

NUM_OPEN = 5
"""Older ones are folded away."""

ENDINGS = {
    FinishReason.EOS: "takes.ended",
    FinishReason.LENGTH: "takes.ended_length",
    FinishReason.CANCELLED: "takes.ended_stopped",
}


def take_list(takes: Sequence[tuple[Take, Path]], empty: str = "") -> Markup:
    """Takes in the order given, each with its file, a player, a download and a delete button; `empty` without any."""
    cards = [take_card(*one) for one in takes]
    return render("takes", "take_list", cards=cards, num_open=NUM_OPEN) if takes else note(empty)


def take_card(take: Take, place: Path) -> Markup:
    """One take; `place` is the file to play."""
    how = "takes.by_transcript" if take.is_in_context else "takes.by_sound"
    name, length = download_name(take), length_in_words(take.seconds)
    ending = "" if take.finish_reason is FinishReason.EOS else say(ENDINGS[take.finish_reason])
    return render(
        "takes",
        "card",
        take=take,
        place=place,
        name=name,
        sound=sound_html(place, say("takes.take", number=take.number), voice=take.voice, download=name, length=length),
        ending=ending,
        warning=f"{ending[:1].upper()}{ending[1:]}." if ending else "",
        rate=rate_in_words(take.real_time_factor),
        how=say("takes.by_tuned" if take.is_fine_tuned else how, model=short_name(take.model_name)),
        seeds=list(dict.fromkeys(take.seeds)),
        carries=carried(take),
        doubts=[(number, part, doubt_in_words(part)) for number, part in take.doubtful_parts],
        has_parts=len(take.parts) > 1,
        read_along=[
            (part.text, part.start_seconds / take.speed, (part.start_seconds + part.seconds) / take.speed)
            for part in take.parts
        ],
    )


def doubt_in_words(part: TakePart) -> str:
    """Why a part should be listened to."""
    lasts = f"{part.seconds:.1f} s"
    match part.doubt:
        case "lost" if part.heard is not None:
            heard = f" {say('takes.doubt_heard', text=part.heard.text)}" if part.heard.text else ""
            return say("takes.doubt_lost", share=f"{part.heard.lost_share:.0%}") + heard
        case "short":
            return say("takes.doubt_short", lasts=lasts, expected=f"{part.expected_seconds:.1f} s")
        case _:
            return say("takes.doubt_cut", lasts=lasts)


def numbered_parts(numbers: Sequence[int]) -> str:
    """`Part 3`, or `Parts 1, 3 and 4`."""
    if len(numbers) == 1:
        return say("takes.part", number=numbers[0])
    return say("takes.parts", numbers=", ".join(map(str, numbers[:-1])), last=numbers[-1])


def download_name(take: Take) -> str:
    """What its file is called when it is saved: the voice, the first words, the number."""
    return file_name(take.voice, take.text, f"t{take.number:02}", suffix=FORMAT_TABLE[take.audio_format].suffix)


def carried(take: Take) -> str:
    """What the download says of itself."""
    if take.is_signed:
        said = say("takes.carries_signed")
    elif take.statement is not None and FORMAT_TABLE[take.audio_format].has_comment:
        said = say("takes.carries_comment")
    else:
        said = say("takes.carries_nothing")
    return said if take.mark is None else f"{said} {say('takes.carries_mark')}"


def rate_in_words(real_time_factor: float) -> str:
    """Seconds of work per second of speech, and what that means."""
    meaning = say("takes.faster") if real_time_factor < 1 else say("takes.slower")
    return say("takes.rate", seconds=f"{real_time_factor:.2f}", meaning=meaning)
