"""Jobs: strict, frozen, and helpful about what is wrong with them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from backend.voices.names import clean_name
from tests.training.finetuning import make_job
from training.errors import JobInvalid
from training.job import STRATEGIES, FineTuneJob
from training.strategies.build import WRAP_BY_STRATEGY


def test_every_strategy_is_in_the_table():
    assert tuple(WRAP_BY_STRATEGY) == STRATEGIES


def test_a_job_survives_its_file(tmp_path):
    job = make_job(tmp_path, strategy="zero2", deepspeed={"zero_optimization": {"reduce_bucket_size": 5}})
    job.write(tmp_path / "job.json")
    assert FineTuneJob.read(tmp_path / "job.json") == job


def test_a_job_is_frozen(tmp_path):
    with pytest.raises(ValidationError, match="frozen"):
        make_job(tmp_path).seed = 2


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_job(tmp_path, output="here").output == tmp_path / "here"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rte": 1e-4}, r"no option 'learning_rte', did you mean 'learning_rate'\."),
        ({"strateggy": "ddp"}, "did you mean 'strategy'"),
        ({"qqqqqq": 1}, r"no option 'qqqqqq'\.$"),
        ({"strategy": "fsdp3"}, "strategy: Input should be 'ddp'"),
        ({"learning_rate": 0}, "learning_rate: Input should be greater than 0"),
        ({"learning_rate": float("inf")}, "learning_rate: Input should be a finite number"),
        ({"num_steps": 10**9}, "num_steps: Input should be less than or equal to"),
        ({"seed": 2**63}, "seed: Input should be less than"),
        ({"code_predictor_fraction": 0.01}, "code_predictor_fraction"),
        ({"voice": "../etc"}, "voice: a voice's name"),
        ({"deepspeed": {"a": 1}}, "need a zero strategy, not ddp"),
        ({"offload": "nvme"}, "needs strategy zero3"),
        ({"offload": "nvme", "strategy": "zero3"}, "set both or neither"),
        ({"offload": "cpu"}, "ddp keeps everything"),
        ({"strategy": "fsdp2-hybrid", "num_workers": 3}, "even number of workers, 4 or more"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_on_one_line(tmp_path, changes, message):
    with pytest.raises(JobInvalid, match=message) as caught:
        make_job(tmp_path, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("voice", ["Ann's (2)", "Анна", "हिन्दी", "A" * 64])
def test_a_name_of_the_library_is_a_name_of_a_job(tmp_path, voice):
    assert make_job(tmp_path, voice=clean_name(voice)).voice == voice


@pytest.mark.parametrize("content", [None, "", "[]", "{"], ids=["missing", "empty", "list", "half"])
def test_files_without_a_job_are_refused(tmp_path, content):
    path = tmp_path / "job.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(JobInvalid, match=r"job\.json"):
        FineTuneJob.read(path)


def test_what_a_run_learns_is_told_from_how_it_is_run(tmp_path):
    job = make_job(tmp_path)
    moved = make_job(tmp_path, strategy="fsdp2", num_workers=2, output=tmp_path / "elsewhere", keep_checkpoints=9)
    assert moved.differences(job) == []
    assert make_job(tmp_path, seed=5, learning_rate=1.0).differences(job) == ["seed", "learning_rate"]
