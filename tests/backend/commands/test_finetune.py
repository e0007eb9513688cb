"""The command line of fine-tunes: options reach the job, refusals are one line, and nothing is started by mistake."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from app import main
from backend.commands.finetune import (
    describe_progress,
    training_options,
    training_request,
)
from backend.commands.options.finetune import add_training_options
from backend.commands.pipeline import dataset_name
from backend.commands.progress import describe_seconds
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.settings import Settings
from backend.store.database import Database
from tests.backend.runs.small_dataset import write_small_dataset
from tests.backend.runs.storage.test_records import record
from tests.golden import GOLDEN_CHECKPOINT

AGREED = ["--consent", "own-voice", "--consent-by", "Ann"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "encore-home"


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_training_options(parser, Settings())
    return parser.parse_args(arguments)


def test_options_reach_the_job_with_their_types() -> None:
    given = parse(
        *("--workers", "2", "--strategy", "fsdp2", "--batching", "bucketed"),
        *("--set", "learning_rate=1e-5", "--set", "precision=fp32"),
    )
    assert training_options(given) == {
        "num_workers": 2,
        "strategy": "fsdp2",
        "batching": "bucketed",
        "learning_rate": 1e-5,
        "precision": "fp32",
    }


def test_a_cluster_may_give_fewer_workers_and_lose_some() -> None:
    assert training_options(parse("--workers", "4", "--min-workers", "2", "--max-failures", "0")) == {
        "num_workers": 4,
        "min_workers": 2,
        "max_failures": 0,
    }


def test_an_adapter_is_asked_for_by_its_own_options() -> None:
    given = parse("--method", "lora", "--lora-rank", "8", "--lora-alpha", "16", "--lora-layers", "mlp", "attention")
    assert training_options(given) == {
        "num_workers": 1,
        "lora_rank": 8,
        "lora_alpha": 16.0,
        "lora_layers": ["mlp", "attention"],
    }
    assert (training_request(given, None, "Ann").method, training_request(parse(), None, "Ann").method) == (
        "lora",
        "auto",
    )


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    told = capsys.readouterr().err.strip()
    assert "\n" not in told
    return told


def test_nothing_starts_without_consent(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    write_small_dataset(home / "datasets" / "mine")
    told = refuse(capsys, "finetune", "mine", "--voice", "Ann", "--model", str(GOLDEN_CHECKPOINT))
    assert "consent" in told
    assert "consent" in refuse(capsys, "pipeline", "a.wav", "--voice", "Ann")
    assert not (home / "runs").exists()


def test_a_misspelt_option_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    write_small_dataset(home / "datasets" / "mine")
    options = ["--voice", "Ann", "--model", str(GOLDEN_CHECKPOINT), *AGREED, "--set", "lerning_rate=1"]
    assert "did you mean 'learning_rate'" in refuse(capsys, "finetune", "mine", *options)
    assert "option=value" in refuse(capsys, "finetune", "mine", *options[:-1], "nonsense")
    assert "--set cannot change method" in refuse(capsys, "finetune", "mine", *options[:-1], "method=lora")
    assert "--set cannot change voice" in refuse(capsys, "finetune", "mine", *options[:-1], "voice=Bea")


def test_an_unknown_dataset_and_run_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no dataset 'theirs'" in refuse(capsys, "finetune", "theirs", "--voice", "Ann", *AGREED)
    assert "There is no run 'seven'" in refuse(capsys, "runs", "show", "seven")


def test_a_report_that_cannot_be_written_is_refused_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["pipeline", "a.wav", "--voice", "Ann", *AGREED, "--report", str(tmp_path / "no" / "r.html")]
    assert "does not exist" in refuse(capsys, *arguments)


def test_a_pipeline_is_refused_before_it_builds(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    start = ["--voice", "Ann", "--model", str(GOLDEN_CHECKPOINT), *AGREED]
    assert "a.wav does not exist" in refuse(capsys, "pipeline", str(tmp_path / "a.wav"), *start)
    (tmp_path / "a.wav").touch()
    for wrong, told in {
        ("--set", "lerning_rate=1"): "did you mean 'learning_rate'",
        ("--workers", "1000"): "1000 workers need",
        ("--strategy", "fsdp2-hybrid"): "even number of workers",
    }.items():
        assert told in refuse(capsys, "pipeline", str(tmp_path / "a.wav"), *start, *wrong)
    assert not (home / "datasets").exists()


def test_a_pipeline_that_finds_no_speech_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    start = ["--voice", "Ann", "--model", str(GOLDEN_CHECKPOINT), "--whisper", "none", *AGREED]
    assert main(["pipeline", str(tmp_path / "empty.wav"), *start]) == 2
    told = capsys.readouterr().err
    assert "No clip could be cut from any recording. The first one: empty.wav is empty." in told
    assert "dataset show" not in told, "it left no dataset"


def test_runs_are_listed_shown_and_reported(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert main(["runs", "list"]) == 0
    assert "no runs yet" in capsys.readouterr().err
    rows = RunTable(Database(home))
    rows.add(record(state=RunState.FAILED, message="The disk was full."))
    rows.add_metrics("one", 1, {1: {"talker_loss": 3.25}})
    assert main(["runs", "list"]) == 0
    assert "failed" in capsys.readouterr().out
    assert main(["runs", "show", "one"]) == 0
    shown = capsys.readouterr().out
    assert "The disk was full." in shown
    assert "talker_loss 3.25" in shown
    assert "1 worker(s), training all weights" in shown
    assert main(["runs", "report", "one", "--output", str(home / "r.html")]) == 0
    assert "The disk was full." in (home / "r.html").read_text()


def test_progress_is_described_in_words() -> None:
    run = record(state=RunState.RUNNING, step=5)
    told = describe_progress(run, 300.0, {"talker_loss": 2.5, "code_predictor_loss": 1.5})
    assert told == "one: step 5 of 10, talker 2.500, code predictor 1.500, about 5 min left"
    assert describe_progress(record(message="Waiting."), None, {}) == "one: queued. Waiting."
    assert [describe_seconds(seconds) for seconds in (20, 600, 7200)] == ["20 s", "10 min", "2.0 h"]


def test_a_voices_name_names_its_dataset() -> None:
    assert dataset_name("Ann's voice (2)") == "Ann-s-voice-2"
    assert dataset_name("Анна") == "voice"
