"""The page of a run: whole in one file, nothing executed, and everything a person needs to decide."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from backend.audio.writing import write_wav
from backend.errors import OutputInvalid
from backend.evaluation.scores import summarize
from backend.runs.charts import line_chart, ticks
from backend.runs.report import render_report, write_report
from backend.runs.storage.records import BASE, CheckpointRecord, EventRecord, MetricRecord
from backend.runs.storage.states import RunState
from tests.backend.evaluation.test_scores import take
from tests.backend.runs.storage.test_records import record

HOSTILE = '<script>alert("1")</script>'


@pytest.fixture
def page(tmp_path: Path) -> str:
    checkpoints = []
    for name, step in ((BASE, 0), ("step-00000010", 10)):
        (tmp_path / "takes" / name).mkdir(parents=True)
        write_wav(tmp_path / "takes" / name / "00.wav", np.zeros(2400, np.float32), 24_000)
        takes = (take(0, text=f"Say {HOSTILE}", transcript=HOSTILE, file=f"takes/{name}/00.wav"),)
        checkpoints.append(
            CheckpointRecord(
                name=name, step=step, saved_at=1.0, state="evaluated", scores=summarize(takes), takes=takes
            )
        )
    checkpoints.append(
        CheckpointRecord(name="step-00000020", step=20, saved_at=1.0, state="failed", problem=f"Why {HOSTILE}")
    )
    metrics = [
        MetricRecord(step=step, attempt=1, measures={"talker_loss": 3.0 / step, "code_predictor_loss": 2.0 / step})
        for step in range(1, 11)
    ]
    run = record(
        state=RunState.DONE, voice=f"Ann {HOSTILE}", best_checkpoint="step-00000010", verdict="No checkpoint beats it."
    )
    return render_report(run, metrics, checkpoints, [EventRecord(at=1.0, sentence=f"Lost {HOSTILE}")], tmp_path)


def test_text_from_outside_is_escaped(page: str) -> None:
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_nothing_is_fetched(page: str) -> None:
    assert "://" not in page
    assert set(re.findall(r'src="(.{10})', page)) == {"data:audio"}
    assert "default-src 'none'" in page


def test_both_models_can_be_heard(page: str) -> None:
    sounds = re.findall(r"base64,([^\"]+)", page)
    assert len(sounds) == 2
    assert base64.b64decode(sounds[0])[:4] == b"RIFF"
    assert "Base model" in page
    assert "Fine-tuned" in page


def test_the_verdict_the_scores_and_the_failure_are_there(page: str) -> None:
    assert "No checkpoint beats it." in page
    assert "★ best" in page
    assert "Why &lt;script" in page


def test_both_losses_are_drawn(page: str) -> None:
    drawing = ElementTree.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])
    lines = drawing.findall("polyline")
    assert len(lines) == 2
    assert len(lines[0].get("points").split()) == 10


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    page = render_report(record(), [], [], [], tmp_path)
    assert "The run is queued." in page
    assert "Listen" not in page


def test_the_report_says_that_a_recording_is_gone(tmp_path: Path) -> None:
    takes = (take(0, file="takes/base/99.wav"),)
    base = CheckpointRecord(name=BASE, step=0, saved_at=1.0, state="evaluated", scores=summarize(takes), takes=takes)
    assert "The recording is gone." in render_report(record(), [], [base], [], tmp_path)


def test_a_report_is_not_written_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputInvalid, match="is a folder"):
        write_report(tmp_path, record(), [], [], [], tmp_path)


def test_a_chart_can_show_nan_one_point_and_equal_values() -> None:
    for points in ([(1.0, float("nan"))], []):
        assert line_chart("t", {"a": points}) == ""
    for points in ([(1.0, 2.0)], [(1.0, 2.0), (2.0, 2.0)], [(1.0, float("inf")), (2.0, 1.0)]):
        ElementTree.fromstring(re.search(r"<svg.*?</svg>", line_chart("t", {"a": points}))[0])


def test_long_lines_are_thinned_and_keep_their_end() -> None:
    chart = line_chart("t", {"a": [(float(step), float(step)) for step in range(10_000)]})
    points = re.search(r'points="([^"]+)"', chart)[1].split()
    assert len(points) <= 601
    assert points[-1].startswith("708")


def test_ticks_are_round_and_span_the_range() -> None:
    assert ticks(0.13, 0.87) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for low, high in ((0.0, 0.0), (5.0, 5.0), (-3.0, 1e6), (1e-9, 2e-9)):
        found = ticks(low, high)
        assert found[0] <= low
        assert found[-1] >= high
        assert len(found) <= 8


def test_a_chart_names_its_lines_only_where_there_are_several() -> None:
    line = [(1.0, 2.0), (2.0, 1.0)]
    assert 'class="key' not in line_chart("Gradient norm", {"gradient norm": line})
    assert line_chart("Loss", {"one": line, "other": line}).count('class="key') == 2
