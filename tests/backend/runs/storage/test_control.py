"""Files between supervisor and workers: replaced whole, read once, and no half line spoils another."""

from __future__ import annotations

import time
from pathlib import Path

from backend.runs.storage.control import Control, LineReader, LineWriter
from backend.runs.storage.run_folder import RunFolder


def test_a_missing_control_file_asks_for_nothing(tmp_path: Path) -> None:
    assert Control.read(tmp_path / "control.json") == Control(attempt=0, stop=None)


def test_a_stop_keeps_the_attempt(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    Control(attempt=3).write(folder.control)
    folder.ask_to_stop("pause")
    asked = Control.read(folder.control)
    assert (asked.attempt, asked.stop) == (3, "pause")
    assert 0 <= time.monotonic() - asked.asked_at < 60
    assert [path.name for path in tmp_path.iterdir()] == ["control.json"]


def test_each_line_is_read_once_in_the_order_of_the_writers(tmp_path: Path) -> None:
    reader = LineReader(tmp_path)
    assert list(reader.new_lines()) == []
    first = LineWriter(tmp_path, 1)
    first.write({"step": 1})
    second = LineWriter(tmp_path, 1)
    second.write({"step": 2})
    third = LineWriter(tmp_path, 2)
    third.write({"step": 3})
    assert [line["step"] for line in reader.new_lines()] == [1, 2, 3]
    first.write({"step": 4})
    assert list(reader.new_lines()) == [{"step": 4}]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    (tmp_path / "0001-0000-aa.jsonl").write_bytes(b'{"step": 1}\n{"st')
    LineWriter(tmp_path, 1).write({"step": 2})
    reader = LineReader(tmp_path)
    assert [line["step"] for line in reader.new_lines()] == [1, 2]
    with (tmp_path / "0001-0000-aa.jsonl").open("ab") as file:
        file.write(b'ep": 3}\n')
    assert list(reader.new_lines()) == [{"step": 3}]


def test_the_log_is_shown_without_colours(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_log() == ""
    folder.log.write_bytes(b"\x1b[36mhello\x1b[0m \xff\n")
    assert folder.read_log() == "hello \ufffd\n"
