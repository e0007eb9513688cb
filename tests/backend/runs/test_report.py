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
from backend.evaluation.scores import Hearing, summarize
from backend.runs.report import render_report, write_report
from backend.runs.storage.records import BASE, CheckpointRecord, EventRecord, MetricRecord
from backend.runs.storage.states import RunState
from tests.backend.evaluation.test_scores import take
from tests.backend.runs.storage.test_records import record
from training.data.code_rows import DatasetCard, write_card

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
    events = [EventRecord(at=1.0, sentence=f"Lost {HOSTILE}")]
    return render_report(run, metrics, checkpoints, events, tmp_path, starred=BASE)


def test_text_from_outside_is_escaped(page: str) -> None:
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_a_report_loads_nothing_from_elsewhere(page: str) -> None:
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
    assert "Base model, zero-shot ★ best" in page
    assert page.count("★") == 1
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


def test_the_report_names_who_listened_to_the_clips(tmp_path: Path) -> None:
    run = record()
    card = DatasetCard(
        name="ann",
        language="english",
        model="mini",
        tokenizer_fingerprint="f",
        num_codebooks=4,
        reference_clip_id="a",
        digest=run.job.dataset_digest,
        transcribers=("pocketsphinx",),
    )
    write_card(tmp_path, card)
    run = run.model_copy(update={"job": run.job.model_copy(update={"dataset": tmp_path})})
    assert "pocketsphinx listened" in render_report(run, [], [], [], tmp_path)
    # Changed since, it says nothing about this run.
    write_card(tmp_path, card.model_copy(update={"digest": "another"}))
    assert "pocketsphinx" not in render_report(run, [], [], [], tmp_path)


def test_a_report_is_not_written_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputInvalid, match="is a folder"):
        write_report(tmp_path, record(), [], [], [], tmp_path)


def test_who_listened_stands_beside_what_was_heard(tmp_path: Path) -> None:
    also = (Hearing(listener="pocketsphinx", transcript="hollow", character_error=0.5, word_error=1.0),)
    heard = take(
        transcript="hello", transcriber="whisper base", character_error=0.1, also_heard=also,
        verified_similarity=0.4, verifier="GE2E",
    )  # fmt: skip
    scores = summarize([heard], {"": {"whisper base": 0.02, "pocketsphinx": 0.2}})
    base = CheckpointRecord(name=BASE, step=0, saved_at=1.0, state="evaluated", scores=scores, takes=(heard,))
    page = render_report(record(state=RunState.DONE), [], [base], [], tmp_path)
    assert "10.0% by whisper base (2.0% in the speaker&#39;s own recordings); 50.0% by pocketsphinx (20.0%" in page
    assert "0.40 by GE2E: no more like the voice than a stranger&#39;s" in page
