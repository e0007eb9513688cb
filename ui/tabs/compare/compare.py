"""Which voices are compared, how a listening test of theirs stands, and what becomes of it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from markupsafe import Markup

from backend.background_tasks import BackgroundTask
from backend.comparisons.comparison import Letter, Verdict
from backend.comparisons.contenders import Contender, find_side
from backend.comparisons.listening_test import ListeningTest
from backend.comparisons.make_comparison import ComparisonOrder, FinishedComparison
from backend.comparisons.time_alignment import aligned_times
from backend.evaluation.plan import STANDARD_SENTENCES
from backend.evaluation.take_scores import read_own_wav
from backend.serving.loaded_model import LoadedModel
from ui.context import PageContext
from ui.fields import FormIncomplete, parse_seed
from ui.html.messages import NOTHING, failure
from ui.html.methods import methods_html
from ui.tabs.compare.render import HeardTake, Pictures, draw, over_html, pair_html, waiting_html
from ui.web.temporary import unguessable_path
from ui.words.words import say

NUM_SENTENCES = 10
"""The fewest votes with which a preference can be told from luck."""

MAX_SENTENCES = 50


@dataclass(kw_only=True)
class Listening:
    """A listening test of one visitor, with the pictures of what was made for it.

    Attributes:
        sides: what is compared.
        pictures: by the id of the comparison.
        problem: why no more comparisons can be made; empty while they can.
        key: what the browser finds it by when the page is loaded anew; nobody can guess it.
        origin: that of the page that began the test, for all others: it is there as long as one of them is.
        page: stands for the page that shows it.
        pages: all that show the test; a browser that duplicates a tab has two, and a page that was loaded anew is
            another one.
    """

    test: ListeningTest
    sides: tuple[Contender, ...]
    pictures: dict[str, Pictures] = field(default_factory=dict)
    problem: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    origin: Listening | None = field(default=None, repr=False)
    page: object = field(default_factory=object, repr=False)
    pages: list[object] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.pages.append(self.page)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to vote on."""
        return self.test.is_over or (bool(self.problem) and self.test.current is None)

    @property
    def is_left(self) -> bool:
        """Whether its page does not show it any more, though another one may."""
        return self.page not in self.pages

    def make(self, context: PageContext, loaded: LoadedModel, task: BackgroundTask[None]) -> None:
        """Make the comparisons, and draw each as it is there. Raises EncoreError."""

        def is_cancelled() -> bool:
            return task.is_cancelled() or self.is_left

        def compare(order: ComparisonOrder) -> Sequence[FinishedComparison]:
            """One of them; progress goes to the test at once."""
            steps = context.studio.comparisons.compare(
                loaded,
                order,
                lambda name: unguessable_path(context.folder, name),
                cancelled=lambda: is_cancelled() or self.test.is_over,
            )
            for step in steps:
                if isinstance(step, FinishedComparison):
                    # First the pictures: what is made may be shown in the next moment.
                    self.pictures[step.comparison.id] = draw(hear(step.paths))
                    return [step]
                self.test.progress = step
            return []

        comparisons = context.studio.comparisons
        self.test.make(compare, lambda made: comparisons.measure(loaded, made), is_cancelled)

    def pass_on(self) -> Listening:
        """The same test for another page, which tries again what has failed; the takes stay while either shows it."""
        return replace(self, origin=self.origin or self, page=object(), problem="")

    def leave(self) -> bool:
        """Its page does not show it any more; returns whether no other page does."""
        if not self.is_left:
            self.pages.remove(self.page)
        return not self.pages

    def vote(self, context: PageContext, comparison_id: str, verdict: Verdict) -> None:
        """Count a vote, unless it came twice. Raises ComparisonError."""
        current = self.test.current
        if current is None or current.comparison.id != comparison_id:
            return
        self.test.count(context.studio.comparisons.votes.vote(comparison_id, verdict))

    def html(self, context: PageContext) -> Markup:
        """What is to be listened to now, or what all the votes say."""
        if self.is_over:
            tallies = context.studio.comparisons.votes.tallies(sorted(side.key for side in self.sides))
            result = over_html(self.test.voted, self.pictures, tallies, self.sides, _methods_of(context, self.sides))
            return failure(self.problem) + result if self.problem else result
        current = self.test.current
        if current is None:
            return waiting_html(self.test)
        return pair_html(self.test, current.comparison, self.pictures[current.comparison.id])


def begin_listening(
    context: PageContext, chosen: Sequence[str], text: str, language: str | None, seed: str | None, blind: bool
) -> Listening:
    """A test as filled in, nothing of it made yet. Raises EncoreError."""
    if len(chosen) < 2:
        raise FormIncomplete(say("compare.choose_two"))
    listed = context.studio.comparisons.list_sides()
    sides = tuple(find_side(listed, key) for key in chosen)
    sentences = [line.strip() for line in text.splitlines() if line.strip()]
    if len(sentences) > MAX_SENTENCES:
        raise FormIncomplete(say("compare.too_many", most=MAX_SENTENCES))
    # A field that was never shown has no value.
    drawn = parse_seed(seed or "")
    orders = [
        ComparisonOrder(
            sides=sides, text=sentence, language=language or "auto", seed=drawn, is_blind=blind, is_measured=False
        )
        for sentence in sentences
    ]
    return Listening(test=ListeningTest(orders), sides=sides)


def standard_sentences(after: str = "") -> str:
    """Ten sentences, one a line: those that follow the last one of `after`, or the first."""
    try:
        lines = STANDARD_SENTENCES.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    sentences = [line.strip() for line in lines if line.strip()]
    last = next((line.strip() for line in reversed(after.splitlines()) if line.strip()), "")
    first = (sentences.index(last) + 1) % len(sentences) if last in sentences else 0
    return "\n".join((sentences * 2)[first : first + NUM_SENTENCES])


def hear(paths: dict[Letter, Path]) -> dict[Letter, HeardTake]:
    """Read takes for their pictures, with the moments that belong together; one whose file is gone is left out."""
    sounds = {letter: read_own_wav(path) for letter, path in paths.items() if path.is_file()}
    moments = aligned_times(list(sounds.values())) if sounds else []
    return {
        letter: HeardTake(path=paths[letter], samples=samples, sample_rate=sample_rate, moments=marks)
        for (letter, (samples, sample_rate)), marks in zip(sounds.items(), moments, strict=True)
    }


def choose_sides(sides: Sequence[Contender], chosen: Sequence[str | None], wished: str = "") -> list[str | None]:
    """What stays chosen; by default the newest voice, and against a fine-tune the same voice without it.

    With `wished`, the id of a voice, that one comes first.
    """
    keys = [side.key for side in sides]
    values = [key if key in keys else None for key in chosen]
    free = [key for key in _proposals(sides, wished) if key not in values]
    return [value or (free.pop(0) if free and index < 2 else None) for index, value in enumerate(values)]


def _proposals(sides: Sequence[Contender], wished: str) -> list[str]:
    """Keys, the ones to begin with first."""
    if not sides:
        return []
    newest = next((side for side in sides if side.source == "voice" and side.id == wished), sides[0])
    others = [side for side in sides if side is not newest]
    same = [side for side in others if (side.source, side.id) == (newest.source, newest.id)]
    zero_shot = [side for side in same if side.way in ("in-context", "x-vector")]
    return list(dict.fromkeys(side.key for side in (newest, *zero_shot, *same, *others)))


def _methods_of(context: PageContext, sides: Sequence[Contender]) -> Markup:
    """What zero-shot, adapters and full fine-tunes of the same clips came to, if one of the sides was trained."""
    studio = context.studio
    for side in sides:
        run_id = side.id if side.source == "run" else None
        if side.source == "voice":
            run_id = next((voice.run_id for voice in studio.voices.list() if voice.id == side.id), None)
        if run_id is not None and any(run.id == run_id for run in studio.runs.list()):
            return methods_html(studio.runs.methods(run_id), run_id)
    return NOTHING


def proposed_name(context: PageContext, side: Contender) -> str:
    """What a side may be called: its own name, or that with the way it speaks; never the name of another voice."""
    name = side.label.partition(":")[0].removeprefix("Sample ").partition(",")[0]
    name = name if side.way != "x-vector" else say("compare.by_sound", name=name)
    own = context.studio.voices.get(side.id) if side.source == "voice" else None
    if own is not None and next(iter(own.modes), None) == side.way:
        return own.name
    return context.studio.voices.free_name(name)


def delete_listening(listening: Listening | None) -> None:
    """Leave a test; once no page looks at it any more it ends, and its takes are removed."""
    if listening is None or not listening.leave():
        return
    listening.test.end()
    for made in listening.test.made:
        for path in made.paths.values():
            path.unlink(missing_ok=True)
