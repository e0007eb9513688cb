"""A build that fails leaves no dataset that it made and that holds nothing, and everything else as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

import app
from backend.background_tasks import TaskCancelled
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildState
from backend.dataset.datasets import Datasets
from backend.dataset.failed_build import removed_if_empty
from backend.errors import EncoreError
from backend.store.home import Home
from backend.store.trash import Trash
from tests.golden import GOLDEN_CHECKPOINT
from training.data.code_rows import TrainingDataError

CONSENT = ("--consent", "synthetic", "--consent-by", "Ann Author")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("ENCORE_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture
def empty(tmp_path) -> Path:
    (tmp_path / "empty.wav").touch()
    return tmp_path / "empty.wav"


def refused(capsys, *argv: object) -> str:
    """The line of a command that ended with status 2."""
    assert app.main([*map(str, argv), *CONSENT, "--model", str(GOLDEN_CHECKPOINT), "--whisper", "none"]) == 2
    output, error = capsys.readouterr()
    assert "No clip could be cut" not in output  # the error says it
    assert "Traceback" not in error
    return error.splitlines()[-1]


def build(capsys, recording: Path, *more: str) -> str:
    return refused(capsys, "dataset", "build", recording, "--name", "bad", "--workers", "0", *more)


def test_a_dataset_of_which_nothing_came_is_gone_and_the_error_says_why(home, empty, capsys):
    """It was listed without a state, and the line named it for the reasons."""
    line = build(capsys, empty)
    assert line.startswith("encore: No clip could be cut from any recording. The first one: empty.wav is empty.")
    assert Datasets(home).list() == []
    assert Trash(home).list() == ()


def test_the_same_holds_for_the_whole_pipeline(home, empty, capsys):
    line = refused(capsys, "pipeline", empty, "--voice", "p1")
    assert "empty.wav is empty" in line
    assert Datasets(home).list() == []
    assert Trash(home).list() == ()


def test_a_dataset_that_was_there_before_stays(home, empty, capsys):
    datasets = Datasets(home)
    datasets._table.save_job(BuildJob.parse("bad", [empty], model=str(GOLDEN_CHECKPOINT)))
    build(capsys, empty)
    assert datasets.list() == ["bad"]
    assert "empty" in datasets.show("bad").recordings[0].problem


STOPPED = TaskCancelled("Stopped.")


def fail_after(
    home: Home, datasets: Datasets, job: BuildJob, state: str, *, even_cancelled: bool, error: EncoreError = STOPPED
) -> None:
    """A build that has come so far when it is told to stop, or fails by itself."""
    with removed_if_empty(home, datasets, job.name, even_cancelled=even_cancelled):
        datasets._table.save_job(job)
        datasets._builds.begin(job.name)
        datasets._builds.finish(job.name, BuildState(state))
        raise error


@pytest.mark.parametrize(
    ("state", "even_cancelled", "stays"),
    [
        # The same command goes on with it.
        ("cancelled", False, True),
        ("cancelled", True, False),
        # Its process was gone before it could say that it had stopped.
        ("interrupted", True, False),
        # It was whole before it could be stopped.
        ("done", True, True),
    ],
)
def test_a_cancelled_build_goes_only_where_nothing_goes_on_with_it(home, empty, state, even_cancelled, stays):
    datasets, job = Datasets(home), BuildJob.parse("half", [empty], model=str(GOLDEN_CHECKPOINT))
    with pytest.raises(TaskCancelled):
        fail_after(home, datasets, job, state, even_cancelled=even_cancelled)
    assert datasets.list() == (["half"] if stays else [])


def test_a_build_whose_process_died_stays_to_be_resumed(home, empty):
    """It was removed with its uploads, below a line that said to build again to resume."""
    datasets, job = Datasets(home), BuildJob.parse("half", [empty], model=str(GOLDEN_CHECKPOINT))
    died = TrainingDataError("The build stopped unexpectedly.")
    with pytest.raises(TrainingDataError):
        fail_after(home, datasets, job, "interrupted", even_cancelled=True, error=died)
    assert datasets.list() == ["half"]
