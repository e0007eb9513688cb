"""From what is filled in on the fine-tune tab to a plan, and from there to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from backend.background_tasks import BackgroundTask, BackgroundTasks
from backend.dataset.clips.job import BuildJob
from backend.pipeline import build_and_start
from backend.runs.planning.plan import RunPlan, RunRequest
from backend.voices.consent import Consent
from backend.voices.samples import get_sample
from ui.context import PageContext
from ui.source import Source
from ui.tabs.dataset.prepare import Material, Preparation, plan_build, proposed_name
from ui.tabs.voice.speak import NotReady

FROM_DATA = ""
"""Instead of a preset: the one that suits how much speech there is."""

MADE_FIRST = "+"
"""Instead of a dataset, none of which can be called so: one that is made of what the voice tab has."""

MAKING_CLIPS = "Preparing the clips"
"""What a start does that makes a dataset first; it may take minutes, and can be cancelled."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is filled in; None and empty fields leave it to the preset."""

    dataset: str | None
    preset: str
    strategy: str
    workers: str
    device: str
    learning_rate: str
    steps: str
    micro_batch_tokens: str
    saves_memory: bool

    @classmethod
    def read(cls, dataset: str | None, preset: str | None, *advanced: Any) -> Self:
        """From the values of the fields, some of which nobody has touched."""
        strategy, workers, device, learning_rate, steps, rows, saves_memory = advanced
        return cls(
            dataset=dataset,
            preset=preset or FROM_DATA,
            strategy=strategy,
            workers=workers or "",
            device=device,
            learning_rate=learning_rate or "",
            steps=steps or "",
            micro_batch_tokens=rows or "",
            saves_memory=bool(saves_memory),
        )

    @property
    def options(self) -> dict[str, Any]:
        """As a job knows them; they are checked there."""
        given: dict[str, Any] = {
            "strategy": self.strategy,
            "num_workers": self.workers.strip() or None,
            "device": self.device,
            "learning_rate": self.learning_rate.strip() or None,
            "num_steps": self.steps.strip() or None,
            "micro_batch_tokens": self.micro_batch_tokens.strip() or None,
            "activation_checkpointing": self.saves_memory or None,
        }
        return {name: value for name, value in given.items() if value is not None}


class Planner:
    """Plans and starts runs in the background; keys are sessions of the page."""

    def __init__(self, context: PageContext) -> None:
        self._bench = context
        self.background_tasks = BackgroundTasks()

    def plan(self, session: str, wish: Wish) -> None:
        """Begin to plan, instead of what was being planned before."""
        if not wish.dataset:
            return
        request, runs = self._request(wish), self._bench.studio.runs

        def work(_: BackgroundTask) -> RunPlan | None:
            return runs.plan(request) if request.dataset is not None else None

        self.background_tasks.start(f"plan {session}", "Planning", work, replaces=True)

    def start(
        self, session: str, wish: Wish, voice: str, consent: Consent, material: Material, source: Source | None
    ) -> None:
        """Begin to check everything and to start the run, on a dataset of `material` where wished.

        Raises EncoreError.
        """
        if not wish.dataset:
            raise NotReady("Choose a dataset first. They are made on the Dataset tab.")
        request, studio = self._request(wish, voice), self._bench.studio

        def work(_: BackgroundTask) -> str:
            return studio.runs.start(studio.runs.plan(request), consent)

        def make_first(task: BackgroundTask) -> str:
            return build_and_start(
                studio.datasets,
                studio.runs,
                self._new_dataset(material, source),
                request,
                consent,
                on_progress=lambda progress: task.report(progress.num_done, progress.num_total),
            )

        if request.dataset is None:
            self.background_tasks.start(f"start {session}", MAKING_CLIPS, make_first)
        else:
            self.background_tasks.start(f"start {session}", "Checking everything, and starting", work)

    def cancel(self, session: str) -> None:
        """Stop the clips that are being made; those that are ready are kept for the next time."""
        self.background_tasks.cancel(f"start {session}")

    def _new_dataset(self, material: Material, source: Source | None) -> BuildJob:
        name = proposed_name(source, self._bench.studio.datasets.list())
        # A sample is done before Ray would have started.
        wanted = Preparation(name=name, language="auto", whisper="", num_actors="0" if material.sample else "")
        return plan_build(self._bench, material, wanted)

    def _request(self, wish: Wish, voice: str | None = None) -> RunRequest:
        """Raises NotReady."""
        return RunRequest(
            model=self._model(),
            dataset=None if wish.dataset == MADE_FIRST else wish.dataset,
            voice=voice,
            preset=wish.preset or None,
            options=wish.options,
        )

    def _model(self) -> str:
        """The one that speaks, or is about to: a plan needs its files, not its voice. Raises NotReady."""
        loaded, loading = self._bench.studio.loaded, self._bench.studio.loading
        if loaded is not None:
            return loaded.name
        if loading is not None and loading.is_running and loading.progress is None:
            return loading.name
        raise NotReady("No model is loaded yet. Load one at the top of the page.")


def read_consent(statement: str | None, who: str, source: Source | None) -> Consent:
    """Who agreed, as filled in; of a sample voice what came with it. Raises ConsentMissing."""
    if source is not None and source.kind == "sample" and statement == "synthetic" and not who.strip():
        return get_sample(source.sample).consent()
    return Consent.give(who, statement or "")  # type: ignore[arg-type] # checked by the model itself
