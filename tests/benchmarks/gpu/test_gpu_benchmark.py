"""The GPU benchmark, rehearsed on a processor; and what becomes of parts that fail, take too long or lack something."""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.benchmarks.gpu.__main__ import REPORT_FILE, RESULTS_FILE, main, write
from tests.benchmarks.gpu.part_process import run_part
from tests.benchmarks.gpu.parts.machine import data_sheet_of
from tests.benchmarks.gpu.plan import PARTS
from tests.benchmarks.gpu.report import SECTIONS, write_report

REPOSITORY = Path(__file__).parents[3]
AWKWARD = "tests.benchmarks.gpu.awkward_part"
# Imports parts, those with the fewest needs first, where nothing else is installed.
ALONE = """
import importlib, importlib.abc, sys
class Refusing(importlib.abc.MetaPathFinder):
    refused = frozenset()
    def find_spec(self, name, path=None, target=None):
        if name in self.refused:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refusing())
for module, refused in {parts!r}:
    Refusing.refused = refused
    importlib.import_module(module)
"""
OPTIONAL = frozenset(
    {"transformers", "safetensors", "pydantic", "pyarrow", "soundfile", "soxr", "pytest", "hypothesis", "psutil"}
    | {"ray", "gradio", "deepspeed", "huggingface_hub", "fastapi", "av", "whisper"}
)
# Bring these along.
COME_WITH = {"transformers": {"safetensors", "huggingface_hub"}}


def test_all_of_it_is_rehearsed_on_a_processor(tmp_path):
    assert main(["--rehearse", "--minutes", "30", "--output", str(tmp_path / "found")]) == 0
    results = json.loads((tmp_path / "found" / RESULTS_FILE).read_text())
    states = {name: part["state"] for name, part in results["parts"].items()}
    assert {name: state for name, state in states.items() if state != "done"} == dict.fromkeys(
        ("decode-0.6b", "streams-0.6b"), "left out"
    )
    found = {name: part["found"] for name, part in results["parts"].items()}
    assert found["tests"]["counts"].get("failed") is None
    assert found["decode-1.7b"]["real_time_factor"]["fp32"][0] > 0
    assert [row["streams"] for row in found["streams-1.7b"]["streams"]] == [2]
    assert found["finetune-fsdp2"]["workers"] == 2
    # What a worker's state takes is planned to the byte; the rest is an estimate.
    for name in ("finetune", "finetune-fsdp2"):
        assert found[name]["measured_state_gib"] == pytest.approx(found[name]["planned_state_gib"], rel=0.01)
    assert found["pretrain"].keys() == {"speech tokenizer", "talker"}
    report = (tmp_path / "found" / REPORT_FILE).read_text()
    assert "rehearsed on a processor" in report
    assert all(f"## {part.title}" in report for part in PARTS)


@pytest.mark.parametrize(("fails", "state"), [(True, "failed"), (False, "over time")])
def test_a_part_that_fails_or_takes_too_long_leaves_what_it_found_and_no_process(tmp_path, fails, state):
    outcome = run_part(AWKWARD, {"fails": fails}, tmp_path / "part", limit_seconds=600 if fails else 6)
    assert outcome.state == state
    assert ("The GPU has gone." in outcome.why) == fails
    with contextlib.suppress(psutil.NoSuchProcess):
        child = psutil.Process(outcome.found["child"])
        # Nobody waits for it where no init process does, so a zombie is as good as gone.
        deadline = time.monotonic() + 10
        while child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.05)
        assert child.status() == psutil.STATUS_ZOMBIE


def test_parts_can_be_imported_with_nothing_but_what_they_need():
    given = {part.module: {*part.needs}.union(*(COME_WITH.get(name, ()) for name in part.needs)) for part in PARTS}
    parts = [
        (f"tests.benchmarks.gpu.parts.{module}", set(OPTIONAL - given[module]))
        for module in sorted(given, key=lambda module: len(given[module]))
    ]
    code = ALONE.format(parts=parts)
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_time_every_part_says_so_and_nothing_is_loaded(tmp_path, capsys):
    assert main(["--rehearse", "--minutes", "0", "--output", str(tmp_path)]) == 0
    parts = json.loads((tmp_path / RESULTS_FILE).read_text())["parts"]
    assert {part["state"] for part in parts.values()} == {"left out"}
    assert "There was no time left" in (tmp_path / REPORT_FILE).read_text()


def test_what_is_missing_is_named_with_the_line_that_installs_it(tmp_path, monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else real(name))
    main(["--rehearse", "--minutes", "0", "--output", str(tmp_path), "--only", "finetune", "--only", "decode-1.7b"])
    assert "finetune is left out: pip install pyarrow" in capsys.readouterr().out.splitlines()
    parts = json.loads((tmp_path / RESULTS_FILE).read_text())["parts"]
    assert parts["finetune"]["why"] == "pip install pyarrow"
    assert "no time" in parts["decode-1.7b"]["why"]


def test_without_a_gpu_it_says_what_to_do(tmp_path, capsys):
    assert main(["--output", str(tmp_path / "found")]) == 2
    assert "--rehearse" in capsys.readouterr().err
    assert not (tmp_path / "found").exists()


def test_every_part_has_a_section(tmp_path):
    assert {part.name.split("-")[0] for part in PARTS} == SECTIONS.keys()
    results = {"rehearsed": False, "began": "2026-11-25 01:00", "minutes": 20.0, "revision": "", "packages": {}}
    results |= {"missing": [], "parts": {}}
    write(tmp_path, results)
    assert write_report(results) == (tmp_path / REPORT_FILE).read_text().rstrip("\n")


@pytest.mark.parametrize(
    ("name", "peak"), [("NVIDIA H100 80GB HBM3", 989.0), ("NVIDIA H100 PCIe", 756.0), ("NVIDIA L40S", 362.0)]
)
def test_a_gpu_is_known_by_its_most_particular_name(name, peak):
    assert data_sheet_of(name) == peak
    assert data_sheet_of("Radeon") is None
