"""What a fine-tune has changed about a voice besides its likeness, and which voice to use, in words that agree."""

from __future__ import annotations

from backend.runs.process.select_checkpoint import Choice
from backend.runs.storage.records import CheckpointRecord
from ui.words.words import say

_OTHER_CHANGES = {
    ("pace", True): "tune.pace_better",
    ("pace", False): "tune.pace_worse",
    ("endings", True): "tune.endings_better",
    ("endings", False): "tune.endings_worse",
    ("clipping", True): "tune.clipping_better",
    ("clipping", False): "tune.clipping_worse",
}
"""What is said beside likeness and words where it changed: the aspect, and whether it is better."""


def verdict_in_words(base: CheckpointRecord | None, best: CheckpointRecord, choice: Choice) -> str:
    """Sentences on words, pace, endings and clipping, as far as they changed, and one that weighs everything."""
    said = (_clearness(base, best, choice), *_other_changes(choice), _all_in_all(choice))
    return " ".join(filter(None, said))


def _clearness(base: CheckpointRecord | None, best: CheckpointRecord, choice: Choice) -> str:
    """Whether the words are as clear as before, to the same listener; empty where that is not known."""
    before, after = (point.scores if point is not None else None for point in (base, best))
    if before is None or after is None or before.transcriber != after.transcriber:
        return ""
    if before.character_error is None or after.character_error is None:
        return ""
    change = choice.gains.get("words", 0.0)
    return say("tune.clearer" if change > 0 else "tune.less_clear" if change < 0 else "tune.as_clear")


def _other_changes(choice: Choice) -> list[str]:
    """What else is better or worse than before."""
    changed = ((aspect, gain > 0) for aspect, gain in choice.gains.items())
    return [say(words) for one in changed if (words := _OTHER_CHANGES.get(one)) is not None]


def _all_in_all(choice: Choice) -> str:
    """Which voice to use, in a sentence that agrees with those before it; empty where there is no voice before."""
    if choice.beats_base is None:
        return ""
    is_up, is_down = (any(sign * gain > 0 for gain in choice.gains.values()) for sign in (1, -1))
    if choice.beats_base:
        return say("tune.better" if is_up and not is_down else "tune.better_mixed" if is_up else "tune.better_slightly")
    if choice.is_behind:
        return say("tune.worse_mixed" if is_up else "tune.worse")
    if is_up and is_down:
        return say("tune.equal_mixed")
    return say("tune.equal_by_chance" if is_up or is_down else "tune.equal")
