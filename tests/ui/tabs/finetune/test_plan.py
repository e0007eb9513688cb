"""What is planned with, before and while a model is there, and whose consent a run is started with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.background_tasks import TaskState
from backend.runs.runs import Runs
from backend.settings import Settings
from backend.store.home import Home
from backend.voices.consent import SpokenProof
from ui.fields import FormIncomplete
from ui.source import Source
from ui.tabs.finetune.plan import GivenConsent, Planner, Wish

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


PROOF = SpokenProof(phrase="I agree.", heard="I agree", error_rate=0.0, similarity=0.9)


def test_a_consent_that_was_spoken_on_the_voice_tab_is_spoken_in_the_run_too():
    given = GivenConsent(statement="own-voice", who="Ann", proof=PROOF, source=None)
    assert given.read("own-voice", " Ann ").spoken == PROOF


@pytest.mark.parametrize(("statement", "who"), [("own-voice", "Ben"), ("speaker-agreed", "Ann")])
def test_a_proof_belongs_to_the_consent_it_was_given_with(statement, who):
    given = GivenConsent(statement="own-voice", who="Ann", proof=PROOF, source=None)
    assert given.read(statement, who).spoken is None


def test_a_sample_brings_its_own_consent():
    given = GivenConsent(
        statement="synthetic", who="", proof=None, source=Source(kind="sample", name="I", sample="iris")
    )
    assert given.read("synthetic", "").who == "The makers of Encore"
