"""What happens between the Compare button and a vote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from backend.background_tasks import BackgroundTask
from backend.comparisons.comparison import Comparison, Letter
from backend.comparisons.contenders import Contender, find_side
from backend.comparisons.making import ComparisonOrder, FinishedComparison
from backend.evaluation.take_scores import read_own_wav
from ui.context import PageContext
from ui.html import base as render
from ui.live.follow import follow
from ui.tabs.compare import render as render_compare
from ui.tabs.compare.render import HeardTake
from ui.tabs.voice.speak import NotReady, parse_seed
from ui.web.temporary import unguessable_path

Shown = dict[Letter, Path]
"""Where each letter's sound is."""


def read_order(
    context: PageContext, chosen: list[str], text: str, language: str | None, seed: str, blind: bool
) -> ComparisonOrder:
    """What is to be compared, as filled in. Raises EncoreError."""
    if len(chosen) < 2:
        raise NotReady("Choose two voices to compare.")
    sides = context.studio.comparing.list_sides()
    order = ComparisonOrder(
        sides=tuple(find_side(sides, key) for key in chosen),
        text=text,
        language=language or "auto",
        seed=parse_seed(seed),
        is_blind=blind,
    )
    order.check()
    return order


def speak_order(
    context: PageContext, order: ComparisonOrder, cancelled: Callable[[], bool], before: Shown, visit: str
) -> Iterator[list[Any]]:
    """Yield status, takes, voting, third vote, id and paths while the sides speak. Raises EncoreError."""
    loaded = context.studio.loaded
    if loaded is None:
        raise NotReady("No model is loaded yet. Load one at the top of the page.")
    now = ""

    def work(task: BackgroundTask) -> FinishedComparison | None:
        """Speak with all voices, and tell how far it is."""
        nonlocal now
        steps = context.studio.comparing.compare(
            loaded,
            order,
            lambda name: unguessable_path(context.folder, name),
            cancelled=lambda: cancelled() or task.is_cancelled(),
        )
        for step in steps:
            if isinstance(step, FinishedComparison):
                return step
            now = render_compare.progress_line(step)
        return None

    nothing_else = [gr.skip()] * 5
    done = yield from follow(
        context.background_tasks, f"compare {visit}", "Comparing", work, lambda _: [now or gr.skip(), *nothing_else]
    )
    if done is None:
        yield [render.says("", "Stopped."), *nothing_else]
        return
    delete_paths(before)
    comparison = done.comparison
    ready = render.says("good", "<strong>Ready.</strong> Listen to all of them, then vote.")
    takes = render_compare.comparison_html(comparison, hear(done.paths))
    has_third = gr.update(visible=len(comparison.takes) > 2)
    yield [ready, takes, gr.update(visible=True), has_third, comparison.id, done.paths]


def vote_html(context: PageContext, comparison: Comparison) -> str:
    """What the vote was, and what all votes on the same sides say together."""
    sides: dict[str, Contender] = {take.side.key: take.side for take in comparison.takes}
    tallies = context.studio.comparing.rows.tallies(sorted(sides))
    parts = [
        render_compare.vote_line(comparison),
        render_compare.tally_html(tallies, sides),
        render_compare.advice_html(tallies, sides),
    ]
    return render.cards([part for part in parts if part != render.NOTHING])


def hear(paths: Shown) -> dict[Letter, HeardTake]:
    """Read takes for their pictures; one whose file is gone is left out."""
    heard = {}
    for letter, path in paths.items():
        if path.is_file():
            samples, sample_rate = read_own_wav(path)
            heard[letter] = HeardTake(path=path, samples=samples, sample_rate=sample_rate)
    return heard


def choose_sides(sides: Sequence[Contender], chosen: Sequence[str | None]) -> list[str | None]:
    """What stays chosen; where nothing is, the newest voice, and against a fine-tune the same voice without it."""
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


def proposed_name(comparison: Comparison) -> str:
    """What the winner may be called: its own name, or that with the way it speaks."""
    winner = comparison.winner
    if winner is None:
        return ""
    name = winner.side.label.partition(":")[0].removeprefix("Sample ").partition(",")[0]
    return name if winner.side.way != "x-vector" else f"{name} (by sound)"


def delete_paths(paths: Shown) -> None:
    """Remove the takes of a comparison that is over."""
    for path in paths.values():
        path.unlink(missing_ok=True)
