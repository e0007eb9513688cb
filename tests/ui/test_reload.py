"""A page that is loaded anew shows what is under way, and has what was not finished."""

from __future__ import annotations

import gc
import threading
import uuid
from datetime import UTC, datetime

import numpy as np
import pytest

from backend.audio.writing import write_wav
from backend.comparisons.comparison import ComparedTake, Comparison
from backend.comparisons.make_comparison import FinishedComparison
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.storage.lock import dataset_lock
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.handlers import UnservedPage
from ui.fields import FormIncomplete
from ui.tabs.compare.compare import begin_listening, delete_listening, hear
from ui.tabs.compare.render import draw
from ui.tabs.dataset.tab import NEW
from ui.tabs.finetune import starts as starts_module
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


def test_a_comparison_goes_on_with_its_votes(page, tmp_path):
    """Ten sentences were begun anew, whatever had been voted on."""
    tab, begun = begin(page)
    make_all(page, begun, tmp_path)
    votes = page.studio.comparisons.votes
    begun.vote(tab.context, begun.test.current.comparison.id, "A")
    shown = page.call("come_back_to_test", key=begun.key)
    assert "2 / 2" in shown["stage"]
    assert "Iris" not in shown["stage"], "it is blind"
    assert [shown[f"side-{number}"] for number in (1, 2, 3)] == [*SIDES, ""]
    assert shown["compare-text"] == "One.\nTwo."
    now = shown["state"]
    assert (now.test, now.key) == (begun.test, begun.key)
    # The page before is forgotten some time later.
    delete_listening(begun)
    assert all(path.exists() for one in now.test.made for path in one.paths.values())
    now.vote(tab.context, now.test.current.comparison.id, "same")
    assert len(votes.list_voted()) == 2
    assert "Your vote" in page.call("come_back_to_test", key=begun.key)["stage"], "also once it is over"
    assert page.call("come_back_to_test", key="guessed") == {}


def test_a_duplicated_tab_may_go_before_the_first(page, tmp_path):
    """The duplicate had taken the test over: closed, it took the takes from under the other one."""
    _, begun = begin(page)
    make_all(page, begun, tmp_path)
    test, key = begun.test, begun.key
    first, second = (page.call("come_back_to_test", key=key)["state"] for _ in range(2))
    for gone in (begun, second, second):
        delete_listening(gone)
    assert second.is_left
    assert not test.is_over
    assert all(path.exists() for one in test.made for path in one.paths.values())
    del begun, second, gone
    gc.collect()
    # The first one, loaded anew.
    third = page.call("come_back_to_test", key=key)["state"]
    delete_listening(first)
    assert not test.is_over
    delete_listening(third)
    assert test.is_over
    assert not any(path.exists() for one in test.made for path in one.paths.values())


def test_what_failed_is_tried_again_by_a_page_that_was_loaded_anew(page, tmp_path):
    """The test went on, and still said at its end why it could not."""
    tab, begun = begin(page)
    begun.problem = "It broke."
    assert begun.is_over
    shown = page.call("come_back_to_test", key=begun.key)
    now = shown["state"]
    assert not now.is_over
    assert "It broke." not in shown["stage"]
    make_all(page, now, tmp_path)
    for one in now.test.made:
        now.vote(tab.context, one.comparison.id, "same")
    assert now.is_over
    assert "It broke." not in page.call("come_back_to_test", key=begun.key)["stage"]


SIDES = ["sample:iris:in-context:", "sample:owen:in-context:"]


def begin(page):
    """The tab, and a test that was begun on it."""
    tab = page.handler("come_back_to_test").__wrapped__.__self__
    begun = begin_listening(tab.context, SIDES, "One.\nTwo.", "auto", "", blind=True)
    tab._listenings[begun.key] = begun
    return tab, begun


def make_all(page, listening, folder):
    """Make what there is to listen to."""
    listening.test.make(lambda order: [made(listening, order, folder)], lambda one: one.comparison, lambda: False)
    for one in listening.test.made:
        page.studio.comparisons.votes.add(one.comparison)


def made(listening, order, folder):
    """A comparison of an order, as if the voices had spoken."""
    takes = tuple(
        ComparedTake(letter=letter, side=side, seconds=1.0, finish_reason="eos", gain_db=0.0)
        for letter, side in zip(("A", "B"), order.sides, strict=True)
    )
    one = Comparison(
        id=uuid.uuid4().hex,
        made_at=datetime.now(UTC),
        text=order.text,
        language="english",
        seed=1,
        is_blind=order.is_blind,
        takes=takes,
    )
    paths = {letter: folder / f"{one.id}-{letter}.wav" for letter in ("A", "B")}
    for path in paths.values():
        write_wav(path, np.zeros(2400, np.float32), 24_000)
    listening.pictures[one.id] = draw(hear(paths))
    return FinishedComparison(comparison=one, paths=paths)


def test_the_tune_tab_goes_on_following_a_start(page):
    """Clips may be made for minutes before there is a run."""
    starts = page.handler("follow_start").__wrapped__.__self__.planner.starts
    may_end = threading.Event()
    starts.start("browser", say(MAKING_CLIPS), lambda _: str(may_end.wait() and "run"))
    shown = page.call("come_back_to_start", session="after the reload", browser="browser")
    assert say(MAKING_CLIPS) in shown["start-status"]
    assert shown["cancel-start"]["visible"] is True
    assert shown["timer"].active is True
    assert page.call("come_back_to_start", session="after the reload", browser="another") == {}
    may_end.set()
    starts.wait("browser")
    assert "start-status" in page.call("come_back_to_start", session="later", browser="browser"), (
        "there is a run by now"
    )
    # All that follow it are led to it, and once: who pressed the button was left without a word.
    for session in ("after the reload", "later"):
        assert "run" in page.call("follow_start", session=session, browser="browser")
        assert "run" not in page.call("follow_start", session=session, browser="browser")
    assert page.call("come_back_to_start", session="last", browser="browser") == {}


UNTOUCHED = {
    "dataset": None,
    "more": None,
    "name": "",
    "typed": False,
    "given_name": "",
    "references": [],
    "source": None,
    "given_statement": None,
    "given_who": "",
    "proof": None,
    "given_signed": "",
}


def test_a_start_that_failed_meanwhile_is_told(page, monkeypatch):
    """The page that came back had an empty form."""
    starts = page.handler("follow_start").__wrapped__.__self__.planner.starts

    def refuse(_):
        raise FormIncomplete("There is no room.")

    starts.start("away", say(MAKING_CLIPS), refuse)
    starts.wait("away")
    visit = {"session": "back", "browser": "away"}
    assert "There is no room." in page.call("come_back_to_start", **visit)["start-status"]
    assert "There is no room." in page.call("open_finetune", **visit, **UNTOUCHED)["start-status"]
    assert "There is no room." in page.call("follow_start", **visit)["start-status"]
    monkeypatch.setattr(starts_module, "NEWS_SECONDS", 0.0)
    assert page.call("come_back_to_start", **visit) == {}
    assert "There is no room." not in page.call("open_finetune", **visit, **UNTOUCHED)["start-status"]


def test_a_start_that_fails_after_it_was_cancelled_says_why(page):
    """It said that nothing was kept, whatever was."""
    starts = page.handler("follow_start").__wrapped__.__self__.planner.starts
    may_fail = threading.Event()

    def fail_late(_):
        may_fail.wait()
        raise FormIncomplete("There is no room.")

    starts.start("late", say(MAKING_CLIPS), fail_late)
    assert say("tune.stopping") in page.call("cancel_start", browser="late")["start-status"]
    may_fail.set()
    starts.wait("late")
    assert "There is no room." in page.call("follow_start", browser="late")["start-status"]
