"""A page that is loaded anew shows what is under way, and has what was not finished."""

from __future__ import annotations

import threading

import pytest

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.storage.lock import dataset_lock
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.handlers import UnservedPage
from ui.tabs.dataset.tab import NEW
from ui.tabs.finetune.plan import MAKING_CLIPS
from ui.words.words import say


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return UnservedPage(tmp_path_factory.mktemp("page"))


OPENED = {"references": [], "source": None, "files": None, "name": "", "typed": False}


def test_the_data_tab_shows_the_build_that_is_running(page, tmp_path):
    """It showed the form for another dataset."""
    datasets = page.studio.datasets
    for name in ("ended", "running", "newest"):
        (tmp_path / f"{name}.wav").touch()
        datasets._table.save_job(BuildJob.parse(name, [tmp_path / f"{name}.wav"], model=str(GOLDEN_CHECKPOINT)))
    datasets._builds.begin("running")
    assert page.call("list_datasets", chosen=None, **OPENED)["dataset"]["value"] == NEW, "its process is gone"
    datasets._builds.begin("running")
    with dataset_lock(page.settings.home_folder, "running"):
        shown = page.call("list_datasets", chosen=None, **OPENED)
        assert shown["dataset"]["value"] == shown["dataset-name"] == "running"
        assert 'role="progressbar"' in shown["prepare-progress"]
        assert shown["cancel-prepare"]["visible"] is True
        # Who chose something else on this visit still sees that.
        assert page.call("list_datasets", chosen=NEW, **OPENED)["dataset"]["value"] == NEW
        assert page.call("list_datasets", chosen="ended", **OPENED)["dataset"]["value"] == "ended"


def test_the_tune_tab_goes_on_following_a_start(page):
    """Clips may be made for minutes before there is a run."""
    starts = page.handler("follow_start").__wrapped__.__self__.planner.starts
    may_end = threading.Event()
    starts.start("browser", say(MAKING_CLIPS), lambda _: str(may_end.wait() and "run"))
    shown = page.call("come_back_to_start", session="after the reload", browser="browser")
    assert say(MAKING_CLIPS) in shown["start-status"]
    assert shown["cancel-start"]["visible"] is True
    assert shown["timer"].active is True
    assert page.handler("come_back_to_start").__wrapped__.__self__.planner.starts.state("another") is None
    may_end.set()
    starts.wait("browser")
    assert "start-status" in page.call("come_back_to_start", session="later", browser="browser"), (
        "there is a run by now"
    )
    page.call("follow_start", session="later", browser="browser")
    assert starts.state("browser") is None
