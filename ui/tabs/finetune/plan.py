"""From what is filled in on the Tune tab to a plan, and from there to a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from backend.background_tasks import BackgroundTask, BackgroundTasks, TaskCancelled
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildState
from backend.dataset.failed_build import removed_if_empty
from backend.dataset.sources.material import Material, proposed_name
from backend.dataset.storage.lock import is_locked
from backend.errors import EncoreError
from backend.pipeline import build_and_start
from backend.runs.planning.plan import DataPlan, RunPlan
from backend.runs.planning.request import RunRequest
from backend.runs.planning.speakers import SpeakerRequest
from backend.store.home import Home
from backend.voices.consent import Consent, hash_of_file
from backend.voices.names import name_key
from backend.voices.samples import get_sample
from training.job import PRESETS
from ui.consent import Stated
from ui.context import PageContext
from ui.fields import FormIncomplete
from ui.material import plan_build, voice_name
from ui.tabs.finetune.starts import Starts
from ui.words.words import say

FROM_DATA = ""
"""Instead of a preset: the one that suits how much speech there is."""

MADE_FIRST = "+"
"""Instead of a dataset, none of which can be called so: one that is made of what the Speak tab has."""

MAKING_CLIPS = "tune.making_clips"
"""The words for a start that makes a dataset first; it may take minutes, and can be cancelled."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is filled in; empty fields leave it to the preset."""

    dataset: str
    preset: str
    strategy: str
    workers: str
    device: str
    learning_rate: str
    steps: str
    micro_batch_tokens: str
    saves_memory: bool
    accept_synthetic: bool = False
    method: str = "full"
    more: tuple[str, ...] = ()
    """Further datasets, each of which is another speaker of the same run."""

    @classmethod
    def read(cls, **fields: Any) -> Self:
        """From the values of the fields, None where nothing was chosen yet."""
        filled_in: dict[str, Any] = {name: "" if value is None else value for name, value in fields.items()}
        more = [one for one in filled_in.get("more") or () if one != filled_in["dataset"]]
        return cls(**{**filled_in, "more": () if filled_in["dataset"] == MADE_FIRST else tuple(more)})

    @property
    def datasets(self) -> tuple[str, ...]:
        """Of all speakers, the first one's first."""
        return tuple(filter(None, (self.dataset, *self.more)))

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
    """Plans and starts runs in the background: `plans` are by session of the page, `starts` by visitor."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self.plans: BackgroundTasks[RunPlan | None] = BackgroundTasks()
        self.starts = Starts()
        self.quotes: BackgroundTasks[dict[str, DataPlan]] = BackgroundTasks()
        self._quoted: dict[str, RunRequest] = {}
        self._stale: dict[str, Wish] = {}

    def plan(self, session: str, wish: Wish) -> None:
        """Start to plan, instead of what was being planned before; without a dataset yet there is no result."""
        self._stale.pop(session, None)
        if not wish.dataset:
            return
        if not self._are_current(wish):
            self._stale[session] = wish
        request, runs = self._request(wish), self._context.studio.runs

        def work(_: BackgroundTask[RunPlan | None]) -> RunPlan | None:
            """Plan the run; None while its dataset has not been built."""
            return runs.plan(request) if request.dataset is not None else None

        self.plans.start(session, "Planning", work, replaces=True)
        self._quote(session, request)

    def catch_up(self, session: str) -> bool:
        """Plan again what was refused for changes that have been applied since; returns whether they are on the way."""
        wish = self._stale.get(session)
        if wish is None:
            return False
        if self._are_current(wish):
            self.plan(session, wish)
            return True
        return any(is_locked(self._context.settings.home_folder, name) for name in _made(wish))

    def _are_current(self, wish: Wish) -> bool:
        """Whether the files of all datasets reflect their edits; what is wrong otherwise is told by the plan."""
        datasets = self._context.studio.datasets
        try:
            return all(datasets.rows_are_current(name) for name in _made(wish))
        except EncoreError:
            return True

    def _quote(self, session: str, request: RunRequest) -> None:
        """Plan every recipe, so that each says how long it would take, unless that is known already."""
        anyhow = request.model_copy(update={"preset": None})
        if self._quoted.get(session) == anyhow:
            return
        self._quoted[session] = anyhow
        runs = self._context.studio.runs

        def work(_: BackgroundTask[dict[str, DataPlan]]) -> dict[str, DataPlan]:
            """One recipe after the other; nothing where there is no dataset yet."""
            if request.dataset is None:
                return {}
            plans = {one: runs.plan(request.model_copy(update={"preset": one})).data for one in PRESETS}
            return {preset: data for preset, data in plans.items() if data is not None}

        self.quotes.start(session, "Planning every recipe", work, replaces=True)

    def quoted(self, session: str) -> dict[str, DataPlan]:
        """The plan of every recipe, as soon as it is known."""
        state = self.quotes.state(session)
        return state.result or {} if state is not None and not state.is_running else {}

    def consents(self, datasets: Sequence[str], material: Material, stated: Stated) -> list[Consent | None]:
        """Of each recording that a fine-tune would learn from; None where it is still to be asked for."""
        if MADE_FIRST not in datasets:
            known = self._context.studio.datasets.consents
            return [consent for dataset in datasets for consent in known(dataset).values()]
        if material.sample:
            return [get_sample(material.sample).consent()]
        by_content = stated.by_content
        return [by_content.get(hash_of_file(path)) for path in material.recordings]

    def without_consent(self, datasets: Sequence[str]) -> list[str]:
        """Those with recordings that nobody has agreed to yet."""
        known = self._context.studio.datasets.consents
        return [dataset for dataset in datasets if dataset != MADE_FIRST and None in known(dataset).values()]

    def start(
        self, visitor: str, wish: Wish, voice: str, consent: Consent | None, material: Material, stated: Stated
    ) -> None:
        """Start to check everything and to start the run, on a dataset of `material` if wished.

        `consent` is for recordings without one. The result is the id of the run. Raises EncoreError.
        """
        if not wish.dataset:
            raise FormIncomplete(say("tune.choose_dataset"))
        request, studio = self._request(wish, voice), self._context.studio

        def work(_: BackgroundTask[str]) -> str:
            """Start a run on a dataset that is there already."""
            return studio.runs.start(studio.runs.plan(request), consent)

        def make_first(task: BackgroundTask[str]) -> str:
            """Build the dataset, then start the run; a build that is cancelled leaves nothing, or says what it does."""
            build, home = self._new_dataset(material, stated, consent), Home(self._context.settings.home_folder)
            try:
                with removed_if_empty(home, studio.datasets, build.name, even_cancelled=True):
                    return build_and_start(
                        studio.datasets,
                        studio.runs,
                        build,
                        request,
                        consent,
                        on_progress=lambda progress: task.report(progress.num_done, progress.num_total),
                    )
            except TaskCancelled as cancelled:
                raise TaskCancelled(self._what_is_left(build.name)) from cancelled

        if request.dataset is None:
            self.starts.start(visitor, say(MAKING_CLIPS), make_first)
        else:
            self.starts.start(visitor, say("tune.checking"), work)

    def _what_is_left(self, name: str) -> str:
        """Of a dataset whose build was cancelled: it may have been whole by then, or take too long to stop."""
        datasets = self._context.studio.datasets
        if name not in datasets.list():
            return say("tune.nothing_left")
        is_whole = datasets.show(name).state is BuildState.DONE
        return say("tune.left_whole" if is_whole else "tune.left_begun", name=name)

    def _new_dataset(self, material: Material, stated: Stated, consent: Consent | None) -> BuildJob:
        name = proposed_name(voice_name(stated.source), self._context.studio.datasets.list())
        # A sample is done before Ray would have started.
        num_actors = 0 if material.sample else None
        known = stated.by_content
        return plan_build(self._context, material, name=name, num_actors=num_actors, stated=known, consent=consent)

    def _request(self, wish: Wish, voice: str | None = None) -> RunRequest:
        """What is filled in as a request. Raises FormIncomplete."""
        return RunRequest(
            model=self._model(),
            dataset=None if wish.dataset == MADE_FIRST else wish.dataset,
            voice=voice,
            preset=wish.preset or None,
            # Full is the usual choice, and gives way to an adapter where all weights do not fit.
            method="lora" if wish.method == "lora" else "auto",
            accept_synthetic=wish.accept_synthetic,
            more_speakers=tuple(
                SpeakerRequest(dataset=dataset, voice=None if voice is None else self.free_name(dataset))
                for dataset in wish.more
            ),
            options=wish.options,
        )

    def free_name(self, name: str) -> str:
        """The name, or one like it that no voice of the library has."""
        taken = [name_key(voice.name) for voice in self._context.studio.voices.list()]
        return free_name(name, taken)

    def _model(self) -> str:
        """The one that speaks, or is about to: a plan needs its files, not its voice. Raises FormIncomplete."""
        loaded, loading = self._context.studio.loaded, self._context.studio.loading
        if loaded is not None:
            return loaded.name
        if loading is not None and loading.is_running and not loading.num_total:
            return loading.what
        raise FormIncomplete(say("fields.no_model"))


def _made(wish: Wish) -> list[str]:
    """Those of its datasets that are there already."""
    return [name for name in wish.datasets if name != MADE_FIRST]


def free_name(name: str, taken: Sequence[str]) -> str:
    """The name, or one like it whose key is not taken."""
    tries = (name, f"{name} tuned", *(f"{name} tuned {number}" for number in range(2, 100)))
    return next((one for one in tries if not one or name_key(one) not in taken), name)
