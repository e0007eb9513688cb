"""What is planned with, before and while a model is there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.background_tasks import TaskState
from backend.runs.runs import Runs
from backend.settings import Settings
from backend.store.home import Home
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
    studio = SimpleNamespace(loaded=None, loading=loading, runs=Runs(Home(tmp_path)))
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


def test_what_is_left_empty_is_left_to_the_preset():
    assert WISH.options == {"strategy": "ddp", "device": "auto", "micro_batch_tokens": "64"}
