"""Ways to a voice side by side: only those that learnt the same clips, each by its newest run, with what it cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.evaluation.scores import summarize
from backend.runs.method_table import compare_methods, same_data
from backend.runs.report import render_report
from backend.runs.storage.records import BASE, RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.database import Database
from tests.backend.evaluation.test_scores import take
from tests.backend.runs.storage.test_records import record

JOB = {"voice": "Ann", "dataset": "/d", "dataset_digest": "1", "base_model": "/m", "output": "/o"}
LIGHT = {**JOB, "method": "lora", "lora_rank": 4}
BEST = "step-00000010"


def done(run_id: str, created_at: float, job: dict[str, object]) -> RunRecord:
    return record(run_id, created_at, state=RunState.DONE, job=job, best_checkpoint=BEST)


def test_only_finished_runs_on_the_same_clips_and_base_are_compared() -> None:
    full, light = done("full", 1.0, JOB), done("light", 2.0, LIGHT)
    others = [
        done("other clips", 3.0, {**JOB, "dataset_digest": "2"}),
        done("other base", 4.0, {**JOB, "base_model": "/n"}),
        record("running", 5.0, state=RunState.RUNNING, job={**LIGHT, "lora_rank": 16}),
    ]
    assert [one.id for one in same_data(full, [full, light, *others])] == ["full", "light"]


def test_a_way_is_there_once_by_the_run_that_is_asked_about_else_by_the_newest() -> None:
    runs = [done("old", 1.0, JOB), done("new", 2.0, JOB), done("light", 3.0, LIGHT), done("light again", 4.0, LIGHT)]
    assert [one.id for one in same_data(runs[0], runs)] == ["old", "light again"]
    assert [one.id for one in same_data(runs[3], runs)] == ["light again", "new"]


@pytest.fixture
def rows(home: Path) -> RunTable:
    rows = RunTable(Database(home))
    for run, similarity in ((done("full", 1.0, JOB), 0.8), (done("light", 2.0, LIGHT), 0.7)):
        rows.add(run)
        for name, step, heard in ((BASE, 0, 0.5), (BEST, 10, similarity)):
            rows.add_checkpoint(run.id, name, step)
            takes = (take(0, verified_similarity=heard, character_error=0.1),)
            rows.add_evaluation(run.id, name, takes, summarize(takes))
    return rows


def test_each_way_has_its_scores_and_its_size(rows: RunTable, home: Path) -> None:
    for run_id, folder, size in (("full", "custom_voice", 900), ("light", "adapter", 30)):
        kept = RunFolder.of(home, run_id).export / folder
        kept.mkdir(parents=True)
        (kept / "model.safetensors").write_bytes(bytes(size))
    zero_shot, full, light = compare_methods(rows.get("full"), rows, home)
    assert [one.likeness for one in (zero_shot, full, light)] == [0.5, 0.8, 0.7]
    assert [one.size_bytes for one in (zero_shot, full, light)] == [None, 900, 30]
    page = render_report(rows.get("full"), [], rows.checkpoints("full"), [], home, [zero_shot, full, light])
    said = [words.strip() for words in re.findall(r'<th scope="row">(.*?)</th>', page)]
    assert [words for words in said if "rank" in words or "weights" in words or "shot" in words] == [
        *("Base model, zero-shot", "Zero-shot", "All weights, quick (this run)"),
        "An adapter of rank 4 on attention and mlp, quick",
    ]


def test_a_single_way_is_compared_with_none(rows: RunTable, home: Path) -> None:
    rows.add(done("alone", 3.0, {**JOB, "dataset_digest": "3"}))
    assert compare_methods(rows.get("alone"), rows, home) == []
