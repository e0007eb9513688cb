"""The summary of `make test`: every tier runs, whatever became of the others, and each is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import run_all

PROJECT = Path(__file__).parents[1]

TESTS = """
import pytest

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise OSError

def test_cannot_begin(broken):
    pass

@pytest.mark.needs_program("flite", "espeak-ng")
def test_needs_programs():
    pass

def test_passes():
    pass
"""


def options_of_a_small_run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """With the conftest file of these tests, and without the plugins, which take longer to load than the tests."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    settings = ["-o", "addopts=--import-mode=importlib", "-c", str(PROJECT / "pyproject.toml")]
    return [*settings, "-p", "tests.conftest", "-p", "no:cacheprovider"]


def test_all_tiers_run_and_the_last_line_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "test_some.py").write_text(TESTS)
    monkeypatch.setattr(
        run_all, "TIERS", {"first": ["-k", "not passes"], "none": ["-k", "nothing"], "last": ["-k", "passes"]}
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    options = options_of_a_small_run(monkeypatch)
    assert run_all.main([*options, str(tmp_path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    summary = lines[lines.index("=== summary") + 1 :]
    assert [line for line in summary if not line.startswith(" ")] == [
        "first: 0 passed, 2 failed, 1 skipped",
        "none: 0 passed, 0 failed, 0 skipped",
        "last: 1 passed, 0 failed, 0 skipped",
        "1 passed, 2 failed, 1 skipped",
    ]
    assert "    skipped 1: not installed: flite, espeak-ng (apt-get install flite espeak-ng)" in summary
    assert any(line.startswith("    failed: ") and line.endswith("::test_cannot_begin") for line in summary)


def test_a_module_that_cannot_be_imported_is_counted_beside_a_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name")
    (tmp_path / "test_tier.py").write_text("import pytest\n\n@pytest.mark.ray\ndef test_of_a_tier():\n    pass\n")
    monkeypatch.setattr(run_all, "TIERS", {"only": ["--continue-on-collection-errors"]})
    assert run_all.main([*options_of_a_small_run(monkeypatch), str(tmp_path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "tier ray: 1 passed" in lines
    assert lines[-1].startswith("1 passed, 1 failed, 0 skipped")


def test_pytest_ending_without_a_tally_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(run_all, "TIERS", {"only": []})
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert run_all.main(["--no-such-option"]) == 4
    assert capfd.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


TESTS_OF_CHANCE = """
tried = []

def test_passes_when_tried_again():
    tried.append(1)
    assert len(tried) == 2, "so it was"

def test_fails_each_time():
    assert False
"""


def test_what_passed_only_when_tried_again_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "test_chance.py").write_text(TESTS_OF_CHANCE)
    monkeypatch.setattr(run_all, "TIERS", {"only": ["-p", "pytest_rerunfailures", "--reruns", "1"]})
    assert run_all.main([*options_of_a_small_run(monkeypatch), str(tmp_path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"
    summary = lines[lines.index("=== summary") + 1 :]
    named = [line.strip().split("::") for line in summary if "::" in line]
    assert [(words[0].partition(":")[0], words[1]) for words in named] == [
        ("failed", "test_fails_each_time"),
        ("passed when tried again", "test_passes_when_tried_again"),
    ]
    before = [line.partition("before: ")[2] for line in summary if "before: " in line]
    assert len(before) == 2
    assert before[0].startswith("assert False")
    assert before[1].startswith("AssertionError: so it was")


def test_marks_that_are_asked_for_narrow_each_tier():
    """Else every tier would run all of them once more."""
    options = ["-n", "2", "-m", "not ray", "--reruns", "1"]
    both = run_all.narrowed(options, ["-x", "-m", "browser", "tests/browser"])
    assert both == ["-n", "2", "--reruns", "1", "-x", "tests/browser", "-m", "(not ray) and (browser)"]
    assert run_all.narrowed(options, ["tests/ui"]) == [*options, "tests/ui"]
