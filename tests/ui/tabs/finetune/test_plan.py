"""What is planned with, before and while a model is there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from backend.background_tasks import TaskState
from backend.dataset.datasets import Datasets
from backend.runs.runs import Runs
from backend.settings import Settings
from backend.store.home import Home
from tests.backend.runs.small_dataset import write_small_dataset
from tests.golden import GOLDEN_CHECKPOINT
from ui.fields import FormIncomplete
from ui.tabs.finetune.plan import Planner, Wish

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
