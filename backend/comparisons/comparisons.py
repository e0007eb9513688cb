"""Voices side by side: who can be compared, making a comparison, and keeping the winner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from backend.comparisons.comparison import Comparison
from backend.comparisons.contender_voices import ContenderVoices
from backend.comparisons.contenders import Contender, keys_of, list_sides
from backend.comparisons.errors import ComparisonError
from backend.comparisons.make_comparison import ComparisonOrder, ComparisonProgress, FinishedComparison, make_comparison
from backend.comparisons.preference import Standing, preferred, standing
from backend.comparisons.vote_table import VoteTable
from backend.evaluation.take_scores import TakeMeasuring, read_own_wav
from backend.provenance.signing import FileSigner
from backend.runs.runs import Runs
from backend.serving.loaded_model import LoadedModel
from backend.voices.registry import Voices
from backend.voices.samples import list_samples
from backend.voices.voice import Voice


class Comparisons:
    """Compares voices; its methods may be called from any thread.

    Attributes:
        votes: what was compared, and the votes on it.
        contenders: finds and keeps the voices of contenders.
        measuring: measures takes.
    """

    def __init__(
        self, votes: VoteTable, voices: Voices, runs: Runs, home: Path, signer: FileSigner | None = None
    ) -> None:
        """With a signer what is compared is signed; in a blind comparison without what would give a voice away."""
        self.votes, self.contenders, self.measuring = votes, ContenderVoices(voices, runs, home), TakeMeasuring()
        self._voices, self._runs, self._signer = voices, runs, signer

    def list_sides(self) -> tuple[Contender, ...]:
        """Everything that can be compared: voices, checkpoints of runs, samples. Raises StoreError."""
        runs = [(run, self._runs.checkpoints(run.id)) for run in self._runs.list()]
        return list_sides(self._voices.list(), runs, list_samples())

    def compare(
        self,
        synthesizer: LoadedModel,
        order: ComparisonOrder,
        place: Callable[[str], Path],
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[ComparisonProgress | FinishedComparison]:
        """Let two or three contenders speak the same text; yields progress, then the comparison to vote on.

        Args:
            synthesizer: speaks; zero-shot contenders with its base model.
            order: what to compare.
            place: where a file of that name may be put.
            cancelled: asked before every frame; a comparison that was cancelled ends without a result.

        Raises:
            EncoreError: a contender no longer exists or cannot speak, or the disk is full.
        """
        steps = make_comparison(
            order,
            find_voice=self.contenders.find,
            synthesizer=synthesizer,
            measuring=self.measuring,
            place=place,
            signer=self._signer,
            cancelled=cancelled,
        )
        with closing(steps):
            for step in steps:
                if isinstance(step, FinishedComparison):
                    self.votes.add(step.comparison)
                yield step

    def measure(self, synthesizer: LoadedModel, made: FinishedComparison) -> Comparison:
        """Measure the takes of a comparison that was made without; returns it with its scores and its vote.

        Raises:
            EncoreError: a contender or a transcriber no longer exists.
        """
        scores = {
            take.letter: self.measuring.measure(
                *read_own_wav(made.paths[take.letter]),
                reference=self.contenders.find(take.side).reference,
                own=synthesizer.encoder,
                text=made.comparison.text,
                language=made.comparison.language,
            )
            for take in made.comparison.takes
        }
        return self.votes.score(made.comparison.id, scores)

    def preferred(self, comparison_id: str) -> Contender | None:
        """Of the sides of a comparison, the one that wins over the others in all votes on them; None while it is open.

        Raises:
            ComparisonError: there is no such comparison.
        """
        sides = {take.side.key: take.side for take in self.votes.get(comparison_id).takes}
        key = preferred(self.votes.tallies(sorted(sides)), sides)
        return sides[key] if key is not None else None

    def standing(self, voice: Voice) -> tuple[tuple[Contender, Standing], ...]:
        """The votes on each way in which a voice speaks, of those that were voted on. Raises StoreError."""
        voted = self.votes.list_voted()
        sides = [Contender.of_voice(voice, way) for way in voice.modes]
        counted = ((side, standing(voted, keys_of(voice, side))) for side in sides)
        return tuple((side, votes) for side, votes in counted if votes.num_decided)

    def keep(self, synthesizer: LoadedModel, comparison_id: str, name: str) -> Voice:
        """Make the side that wins over the others in all votes a voice of the library, under this name.

        Raises:
            ComparisonError: the votes are even.
            EncoreError: the name is taken, or the side no longer exists.
        """
        winner = self.preferred(comparison_id)
        if winner is None:
            raise ComparisonError("The votes are even, so there is no voice to keep. Vote on another sentence first.")
        provenance = {"chosen_in_comparison": comparison_id}
        return self.contenders.keep(winner, name, synthesizer.name, provenance)
