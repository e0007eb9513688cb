"""What is planned with, before and while a model is there."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from backend.background_tasks import TaskCancelled, TaskState
from backend.dataset import failed_build
from backend.dataset.clips.views import BuildState
from backend.dataset.datasets import Datasets
from backend.dataset.storage.lock import acquire_lock
from backend.runs.runs import Runs
from backend.settings import Settings
from backend.store.home import Home
from tests.backend.runs.small_dataset import write_small_dataset
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import TrainingDataError
from ui.consent import Stated
from ui.fields import FormIncomplete
from ui.material import gather_material
from ui.source import Source
from ui.tabs.finetune import plan as plan_module
from ui.tabs.finetune.plan import MADE_FIRST, Planner, Wish

WISH = Wish(
    dataset="ann",
    preset="",
    strategy="ddp",
    workers="",
    device="auto",
    learning_rate="",
    steps=" ",
    micro_batch_tokens="64",
    saves_memory=False,
)


def planner(tmp_path, loading) -> Planner:
    home = Home(tmp_path)
    studio = SimpleNamespace(loaded=None, loading=loading, runs=Runs(home), datasets=Datasets(home))
    return Planner(SimpleNamespace(studio=studio, settings=Settings(home=tmp_path)))


def test_a_plan_needs_the_files_of_a_model_not_its_voice(tmp_path):
    planning = planner(tmp_path, TaskState(what="mini"))
    planning.plan("session", WISH)
    planning.plans.wait("session")
    assert planning.plans.state("session").problem.startswith("There is no dataset 'ann'.")


@pytest.mark.parametrize(
    "loading",
    [
        None,
        TaskState(what="a/b", is_running=False),
        TaskState(what="a/b", num_done=1, num_total=2),
    ],
    ids=["none", "failed", "downloading"],
)
def test_without_files_there_is_no_plan(tmp_path, loading):
    with pytest.raises(FormIncomplete, match="No model is loaded yet"):
        planner(tmp_path, loading).plan("session", WISH)


def test_further_datasets_are_further_speakers(tmp_path):
    fields = {**vars(WISH), "more": ["ben", "ann", "carl"]}
    wish = Wish.read(**fields)
    assert wish.datasets == ("ann", "ben", "carl")
    assert Wish.read(**{**fields, "dataset": "+"}).more == ()
    assert Wish.read(**{**fields, "more": None}).datasets == ("ann",)
    studio = SimpleNamespace(
        loaded=None, loading=TaskState(what="mini"), voices=SimpleNamespace(list=lambda: [SimpleNamespace(name="Ben")])
    )
    planning = Planner(SimpleNamespace(studio=studio))
    started, looked_at = (planning._request(wish, voice) for voice in ("Ann", None))
    assert [(one.dataset, one.voice) for one in started.more_speakers] == [("ben", "ben tuned"), ("carl", "carl")]
    assert [one.voice for one in looked_at.more_speakers] == [None, None]


@pytest.mark.parametrize(("chosen", "method"), [("full", "full"), ("lora", "lora")])
def test_full_or_light_is_what_is_planned(tmp_path, chosen, method):
    """Light was refused: the run itself decides what is trained."""
    write_small_dataset(tmp_path / "datasets" / "ann")
    planning = planner(tmp_path, TaskState(what=str(GOLDEN_CHECKPOINT)))
    planning.plan("session", replace(WISH, method=chosen))
    planning.plans.wait("session")
    plan = planning.plans.state("session").result
    assert (plan.problems, plan.job.method) == ((), method)


def test_what_is_left_empty_is_left_to_the_preset():
    assert WISH.options == {"strategy": "ddp", "device": "auto", "micro_batch_tokens": "64"}


def end_of_click(tmp_path, monkeypatch, end) -> Planner:
    """One click on a sample, whose build comes to the `end` given."""

    def build_and_start(datasets, _runs, job, *_, **__):
        datasets._table.save_job(job)
        datasets._builds.begin(job.name)
        end(datasets, job)

    monkeypatch.setattr(plan_module, "build_and_start", build_and_start)
    planning = planner(tmp_path, TaskState(what=str(GOLDEN_CHECKPOINT)))
    source = Source(kind="sample", name="Owen", sample="owen")
    stated = Stated(statement="synthetic", who="", source=source)
    planning.start("ann", replace(WISH, dataset=MADE_FIRST), "Owen", None, gather_material([], source), stated)
    planning.starts.wait("ann")
    return planning


@pytest.mark.parametrize(
    ("state", "said", "left"),
    [
        (BuildState.CANCELLED, "Nothing was kept", []),
        (BuildState.DONE, "the dataset owen is kept", ["owen"]),
    ],
)
def test_what_a_cancelled_click_leaves_is_what_it_says(tmp_path, monkeypatch, state, said, left):
    """It said that nothing was kept of a dataset that had been whole before it could be stopped."""

    def stop(datasets, job):
        datasets._builds.finish(job.name, state)
        raise TaskCancelled("Stopped.")

    planning = end_of_click(tmp_path, monkeypatch, stop)
    assert planning.starts.was_cancelled("ann")
    assert said in planning.starts.state("ann").problem
    assert planning._context.studio.datasets.list() == left


def test_a_build_that_does_not_stop_in_time_is_still_there(tmp_path, monkeypatch):
    monkeypatch.setattr(failed_build, "_PATIENCE_SECONDS", 0.1)
    locks = []

    def go_on(datasets, job):
        locks.append(acquire_lock(tmp_path, job.name))
        datasets._builds.begin(job.name)
        raise TaskCancelled("Stopped.")

    planning = end_of_click(tmp_path, monkeypatch, go_on)
    os.close(*locks)
    assert "could not be removed yet: they are the dataset owen" in planning.starts.state("ann").problem
    assert planning._context.studio.datasets.list() == ["owen"]


def test_a_click_that_fails_by_itself_was_not_cancelled(tmp_path, monkeypatch):
    def fail(datasets, job):
        datasets._builds.finish(job.name, BuildState.DONE)
        raise TrainingDataError("There is no room.")

    planning = end_of_click(tmp_path, monkeypatch, fail)
    assert not planning.starts.was_cancelled("ann")
    assert planning.starts.state("ann").problem == "There is no room."
    assert planning._context.studio.datasets.list() == ["owen"]
