"""Folders that appear whole: leftovers of killed writers, and replacing where nothing can be swapped."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from training.model.checkpoint import atomic_folder
from training.model.checkpoint.atomic_folder import create_folder, exchange_folders, replace_in_two_steps
from training.model.errors import CheckpointError

# Takes the name of a folder beside which it leaves what a writer leaves that is killed while it writes.
KILLED_WRITER = """
import os, sys
from pathlib import Path
from training.model.checkpoint import atomic_folder
from training.model.checkpoint.atomic_folder import create_folder
with create_folder(Path(sys.argv[1])) as new:
    (new / "half").write_text("half a file")
    os.kill(os.getpid(), 9)
"""


def make_folder(folder: Path, content: str) -> Path:
    folder.mkdir()
    (folder / "content").write_text(content)
    return folder


def write(destination: Path, content: str, *, replace: bool = False) -> None:
    with create_folder(destination, replace=replace) as new:
        (new / "content").write_text(content)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_appears_only_when_complete(tmp_path: Path) -> None:
    destination = tmp_path / "made" / "on the way" / "new"
    with create_folder(destination) as new:
        assert not destination.exists()
        assert new.parent == destination.parent
    assert names_in(destination.parent) == ["new"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with create_folder(tmp_path / "new") as new:
            (new / "content").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names_in(tmp_path) == []


def test_a_folder_that_appeared_meanwhile_is_kept(tmp_path: Path) -> None:
    def lose_the_race() -> None:
        with create_folder(tmp_path / "new"):
            make_folder(tmp_path / "new", "of another")

    with pytest.raises(CheckpointError, match="exists already"):
        lose_the_race()
    assert names_in(tmp_path) == ["new"]
    assert (tmp_path / "new" / "content").read_text() == "of another"


def test_leftovers_of_a_killed_writer_are_swept_and_others_are_not(tmp_path: Path) -> None:
    destination = tmp_path / "new"
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(destination)], cwd=Path(__file__).parents[4])
    assert killed.returncode == -9
    leftovers = names_in(tmp_path)
    assert len(leftovers) == 1
    assert leftovers[0].startswith(".new.saving.")
    host = leftovers[0].split(".")[3]
    of_the_living = f".new.saving.{host}.{os.getpid()}.00000000"
    of_another_machine = ".new.saving.elsewhere.1.00000000"
    unrelated = ".newer.saving.elsewhere.1.00000000"
    for name in (of_the_living, of_another_machine, unrelated):
        make_folder(tmp_path / name, "")

    write(destination, "done")
    assert names_in(tmp_path) == sorted(["new", of_the_living, of_another_machine, unrelated])

    os.utime(tmp_path / of_another_machine, (0, 0))
    write(destination, "done", replace=True)
    assert names_in(tmp_path) == sorted(["new", of_the_living, unrelated])


def test_what_a_killed_writer_had_moved_aside_is_put_back(tmp_path: Path) -> None:
    of_another_machine = make_folder(tmp_path / ".old.replaced.elsewhere.1.00000000", "kept")
    os.utime(of_another_machine, (0, 0))
    with pytest.raises(CheckpointError, match="exists already"):
        write(tmp_path / "old", "new")
    assert names_in(tmp_path) == ["old"]
    assert (tmp_path / "old" / "content").read_text() == "kept"


def test_two_steps_replace_where_nothing_can_be_swapped(tmp_path: Path) -> None:
    old, new = make_folder(tmp_path / "old", "old"), make_folder(tmp_path / "new", "new")
    replace_in_two_steps(new, old)
    assert names_in(tmp_path) == ["old"]
    assert (old / "content").read_text() == "new"


def test_two_steps_that_fail_halfway_go_back(tmp_path: Path) -> None:
    old = make_folder(tmp_path / "old", "old")
    with pytest.raises(FileNotFoundError):
        replace_in_two_steps(tmp_path / "nowhere", old)
    assert names_in(tmp_path) == ["old"]
    assert (old / "content").read_text() == "old"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can swap two folders in one step")
def test_a_reader_always_finds_a_whole_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = make_folder(tmp_path / "one", "a"), make_folder(tmp_path / "other", "b")
    if not exchange_folders(one, other):
        pytest.skip("this file system cannot swap two folders in one step")
    assert ((one / "content").read_text(), (other / "content").read_text()) == ("b", "a")
    # The moment without a folder is too short to be met by chance, so the way that has one must not be taken.
    monkeypatch.delattr(atomic_folder, "replace_in_two_steps")
    stop = threading.Event()
    problems: list[OSError] = []

    def read() -> None:
        while not stop.is_set():
            try:
                (one / "content").read_text()
            except OSError as error:
                problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(50):
            write(one, str(number), replace=True)
    finally:
        stop.set()
        reader.join()
    assert problems == []
    assert (one / "content").read_text() == "49"
