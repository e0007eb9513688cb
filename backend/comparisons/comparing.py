"""Voices side by side: who there is, what they say, who won, and keeping the winner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

from backend.comparisons.comparisons import Comparisons
from backend.comparisons.contenders import Contender, list_sides
from backend.comparisons.errors import ComparisonError
from backend.comparisons.making import ComparisonOrder, ComparisonProgress, FinishedComparison, make_comparison
from backend.comparisons.resolve import Clone, VoiceResolver
from backend.evaluation.take_scores import TakeMeasuring
from backend.runs.runs import Runs
from backend.serving.pool.loaded_model import LoadedModel, ModelShelf
from backend.serving.speech.speech import Speech
from backend.voices.registry import Voices
from backend.voices.samples import list_samples
from backend.voices.voice import Voice
from training.model.decoding.take_request import TakeRequest


class Speak(Protocol):
    """Speaks a request with a loaded model, see `Studio.speak`."""

    def __call__(
        self,
        loaded: LoadedModel,
        request: TakeRequest,
        *,
        streaming: bool = False,
        cancelled: Callable[[], bool] | None = None,
    ) -> Speech:
        """Speak it."""


class Comparing:
    """The verbs of the compare page; may be called from any thread.

    Attributes:
        rows: what was compared, and the votes.
        resolver: what speaks for a side.
        shelf: checkpoints of fine-tuned voices.
        measuring: what listens beside people.
    """

    def __init__(
        self, rows: Comparisons, voices: Voices, runs: Runs, home: Path, *, clone: Clone, speak: Speak
    ) -> None:
        self.rows, self.shelf, self.measuring = rows, ModelShelf(), TakeMeasuring()
        self.resolver = VoiceResolver(voices, runs, home, clone, self.shelf)
        self._voices, self._runs, self._speak = voices, runs, speak

    def list_sides(self) -> tuple[Contender, ...]:
        """All that can be compared: voices, checkpoints of runs, samples. Raises StoreError."""
        runs = [(run, self._runs.checkpoints(run.id)) for run in self._runs.list()]
        return list_sides(self._voices.list(), runs, list_samples())

    def compare(
        self,
        base: LoadedModel,
        order: ComparisonOrder,
        place: Callable[[str], Path],
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[ComparisonProgress | FinishedComparison]:
        """Let two or three sides say the same; yields progress and then the comparison, which can be voted on.

        Args:
            base: the model that zero-shot sides speak with, and whose speaker encoder listens.
            order: what to compare.
            place: where a file of that name may be put.
            cancelled: asked before every frame; a comparison that was stopped ends without a result.

        Raises:
            EncoreError: a side is not there any more or cannot speak, or the disk is full.
        """

        def say(model: LoadedModel, request: TakeRequest) -> Speech:
            return self._speak(model, request, streaming=True, cancelled=cancelled)

        steps = make_comparison(
            order,
            resolved=lambda side: self.resolver.resolve(side, base),
            base=base,
            speak=say,
            measuring=self.measuring,
            place=place,
        )
        with closing(steps):
            for step in steps:
                if isinstance(step, FinishedComparison):
                    self.rows.add(step.comparison)
                yield step

    def keep(self, base: LoadedModel, comparison_id: str, name: str) -> Voice:
        """Make the side that won a comparison a voice of the library. Raises EncoreError."""
        comparison = self.rows.get(comparison_id)
        if comparison.winner is None:
            raise ComparisonError("Nobody won this comparison, so there is no voice to keep. Compare again.")
        return self.resolver.keep(comparison.winner.side, name, base, {"chosen_in_comparison": comparison_id})
