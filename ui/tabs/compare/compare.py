"""Which voices are compared, and what their takes and votes come to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from backend.comparisons.comparison import Comparison, Letter
from backend.comparisons.contenders import Contender, find_side
from backend.comparisons.make_comparison import ComparisonOrder
from backend.evaluation.take_scores import read_own_wav
from ui.context import PageContext
from ui.fields import FormIncomplete, parse_seed
from ui.html.messages import NOTHING, cards
from ui.tabs.compare.render import HeardTake, advice_html, keep_line, tally_html, vote_line

Shown = dict[Letter, Path]
"""The file of each letter's take."""


def read_order(
    context: PageContext, chosen: Sequence[str], text: str, language: str | None, seed: str, blind: bool
) -> ComparisonOrder:
    """What is to be compared, as filled in. Raises EncoreError."""
    if len(chosen) < 2:
        raise FormIncomplete("Choose two voices to compare.")
    sides = context.studio.comparisons.list_sides()
    order = ComparisonOrder(
        sides=tuple(find_side(sides, key) for key in chosen),
        text=text,
        language=language or "auto",
        seed=parse_seed(seed),
        is_blind=blind,
    )
    order.check()
    return order


def vote_html(context: PageContext, comparison: Comparison) -> Markup:
    """What the vote was, and what all votes on the same voices say together."""
    sides: dict[str, Contender] = {take.side.key: take.side for take in comparison.takes}
    tallies = context.studio.comparisons.votes.tallies(sorted(sides))
    kept = keep_line(context.studio.comparisons.preferred(comparison.id), comparison)
    parts = [vote_line(comparison), tally_html(tallies, sides), advice_html(tallies, sides), kept]
    return cards(part for part in parts if part != NOTHING)


def hear(paths: Shown) -> dict[Letter, HeardTake]:
    """Read takes for their pictures; one whose file is gone is left out."""
    heard = {}
    for letter, path in paths.items():
        if path.is_file():
            samples, sample_rate = read_own_wav(path)
            heard[letter] = HeardTake(path=path, samples=samples, sample_rate=sample_rate)
    return heard


def choose_sides(sides: Sequence[Contender], chosen: Sequence[str | None]) -> list[str | None]:
    """What stays chosen; by default the newest voice, and against a fine-tune the same voice without it."""
    keys = [side.key for side in sides]
    values = [key if key in keys else None for key in chosen]
    free = [key for key in _proposals(sides) if key not in values]
    return [value or (free.pop(0) if free and index < 2 else None) for index, value in enumerate(values)]


def _proposals(sides: Sequence[Contender]) -> list[str]:
    """Keys, the ones to begin with first."""
    if not sides:
        return []
    newest, *others = sides
    same = [side for side in others if (side.source, side.id) == (newest.source, newest.id)]
    zero_shot = [side for side in same if side.way in ("in-context", "x-vector")]
    return list(dict.fromkeys(side.key for side in (newest, *zero_shot, *same, *others)))


def proposed_name(side: Contender) -> str:
    """What a side may be called: its own name, or that with the way it speaks."""
    name = side.label.partition(":")[0].removeprefix("Sample ").partition(",")[0]
    return name if side.way != "x-vector" else f"{name} (by sound)"


def delete_paths(paths: Shown) -> None:
    """Remove the takes of a comparison that is over."""
    for path in paths.values():
        path.unlink(missing_ok=True)
