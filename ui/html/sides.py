"""What the sides of a comparison are called: the voice, and the way in which it speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from backend.comparisons.contenders import WAYS, Contender
from backend.voices.voice import CloningMode
from ui.words.words import say

WAY_WORDS: Mapping[CloningMode, str] = MappingProxyType(
    {
        "in-context": "voices.in_context",
        "x-vector": "voices.by_sound",
        "fine-tuned": "voices.fine_tuned",
        "fine-tuned-in-context": "voices.fine_tuned_in_context",
    }
)


def side_name(side: Contender) -> str:
    """`Ann: zero-shot, in context`, of the English label under which a side is stored; other labels stay."""
    name, _, way = side.label.rpartition(": ")
    step = re.fullmatch(r"fine-tuned, step (\d+)", way)
    if not name or (way != WAYS[side.way] and step is None):
        return side.label
    words = say(WAY_WORDS[side.way]) if step is None else say("voices.fine_tuned_step", step=step[1])
    return f"{_voice_name(side, name)}: {words}"


def _voice_name(side: Contender, name: str) -> str:
    if side.source == "sample":
        return say("speak.sample_name", name=name.removeprefix("Sample "))
    voice, _, moment = name.rpartition(", run of ")
    return say("voices.run_of", name=voice, when=moment) if side.source == "run" and voice else name
