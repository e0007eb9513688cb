"""What is planned with, before and while a model is there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.runs.runs import Runs
from backend.serving.pool.loading import LoadingState
from backend.settings import Settings
from backend.store.database import Database
from training.model.hub.hub import DownloadProgress
from ui.tabs.finetune.plan import Planner, Wish
from ui.tabs.voice.speak import NotReady

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
    studio = SimpleNamespace(loaded=None, loading=loading, runs=Runs(Database(tmp_path), tmp_path))
    return Planner(SimpleNamespace(studio=studio, settings=Settings(home=tmp_path)))


def test_a_plan_needs_the_files_of_a_model_not_its_voice(tmp_path):
    planning = planner(tmp_path, LoadingState(name="mini"))
    planning.plan("session", WISH)
    planning.background_tasks.wait("plan session")
    assert planning.background_tasks.state("plan session").problem.startswith("There is no dataset 'ann'.")


@pytest.mark.parametrize(
    "loading",
    [
        None,
        LoadingState(name="a/b", is_running=False),
        LoadingState(name="a/b", progress=DownloadProgress(bytes_done=1, bytes_total=2, file="x")),
    ],
    ids=["none", "failed", "downloading"],
)
def test_without_files_there_is_no_plan(tmp_path, loading):
    with pytest.raises(NotReady, match="No model is loaded yet"):
        planner(tmp_path, loading).plan("session", WISH)


def test_what_is_left_empty_is_left_to_the_preset():
    assert WISH.options == {"strategy": "ddp", "device": "auto", "micro_batch_tokens": "64"}
