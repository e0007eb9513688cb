"""The doctor: every check has a remedy where something is missing, and none of them raises."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import torch

from backend.commands.doctor import describe, report
from backend.doctor import checks
from backend.doctor.check_storage import check_storage
from backend.doctor.finding import Finding, Level
from backend.settings import Settings
from tests.golden import GOLDEN_CHECKPOINT
from training.model.device import DeviceSelection, Unused


def test_what_is_not_good_has_a_remedy_and_nothing_raises(tmp_path: Path):
    settings = Settings(model="nobody/nothing", home=tmp_path)
    findings = checks.examine(settings)
    assert len({finding.name for finding in findings}) == len(findings) == 13
    for finding in findings:
        assert finding.found
        assert finding.remedy or finding.level == Level.GOOD or finding.name == "Device"


def test_a_model_on_this_computer_is_found_with_its_size(tmp_path: Path):
    finding = checks.check_model(Settings(model=str(GOLDEN_CHECKPOINT), home=tmp_path))
    assert finding.level == Level.GOOD
    assert "MB" in finding.found


@pytest.mark.parametrize("model", ["nobody/nothing", "no model at all", "x" * 500])
def test_a_model_that_is_not_here_is_no_error(model: str):
    assert checks.check_model(Settings(model=model)).level != Level.GOOD


def test_only_offload_to_a_disk_needs_a_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    finding = checks.check_deepspeed(Settings())
    assert finding.level == Level.LIMITED
    assert "NVMe" in finding.found
    assert "g++" in finding.remedy


def test_a_cluster_that_is_gone_is_broken(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as there:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{there.getsockname()[1]}")
        assert checks.check_ray(Settings()).level == Level.GOOD
    finding = checks.check_ray(Settings())
    assert finding.level == Level.BROKEN
    assert "unset it" in finding.remedy


def test_an_open_door_is_broken_until_there_is_a_password():
    assert checks.check_address(Settings(host="0.0.0.0")).level == Level.BROKEN
    assert checks.check_address(Settings(host="0.0.0.0", auth="me:secret")).level == Level.GOOD
    assert checks.check_address(Settings()).level == Level.GOOD


def test_the_report_marks_what_is_wrong_and_puts_the_remedy_under_it():
    lines = describe(
        [
            Finding(name="Disk", level=Level.BROKEN, found="0.1 GB are free.", remedy="Free some."),
            Finding(name="Model", level=Level.GOOD, found="Here."),
        ]
    )
    assert lines == ["!!  Disk   0.1 GB are free.", "           Free some.", "ok  Model  Here."]


def test_a_home_that_cannot_be_written_is_found():
    # A folder in which root cannot write either.
    finding = checks.check_disk(Settings(home=Path("/proc/no-such-home")))
    assert finding.level == Level.BROKEN
    assert finding.remedy == "Set ENCORE_HOME to a folder that you may write."


def test_a_better_gpu_that_is_not_used_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch):
    missed = Unused(device="cuda", reason="There is an NVIDIA GPU.", remedy="Install its driver.")
    selection = DeviceSelection(device=torch.device("cpu"), unused=(missed,))
    monkeypatch.setattr(checks, "select_device", lambda name: selection)
    finding = checks.check_device(Settings())
    assert finding.level == Level.LIMITED
    assert finding.found.endswith(missed.reason)
    assert finding.remedy == missed.remedy


def test_room_for_a_model_is_known_before_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = Settings(model=str(GOLDEN_CHECKPOINT), device="cpu", home=tmp_path)
    assert checks.check_room(settings).level == Level.GOOD
    monkeypatch.setattr("training.model.memory_need.free_bytes", lambda device: 10)
    finding = checks.check_room(settings)
    assert finding.level == Level.BROKEN
    assert "choose a smaller model" in finding.found
    assert checks.check_room(Settings(model="nobody/nothing")).level == Level.GOOD


def test_programs_get_the_findings_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    settings = Settings(model=str(GOLDEN_CHECKPOINT), home=tmp_path)
    status = report(settings, as_json=True)
    findings = [Finding.model_validate(finding) for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert [finding.name for finding in findings] == [finding.name for finding in checks.examine(settings)]
    assert status == int(any(finding.level == Level.BROKEN for finding in findings))


def test_a_storage_is_tried_and_its_problem_is_said(tmp_path: Path):
    assert check_storage(Settings()).level == Level.GOOD
    (tmp_path / "shared").mkdir()
    tried = check_storage(Settings(storage=f"file://{tmp_path}/shared"))
    assert tried.level == Level.GOOD
    assert f"file://{tmp_path}/shared can be written" in tried.found
    missing = check_storage(Settings(storage=f"file://{tmp_path}/unmounted"))
    assert missing.level == Level.BROKEN
    assert "does not exist here" in missing.found
