"""Hashes of a folder's files: written once the files are whole, checked before they are believed.

`hashes.json` lists every other file that the folder had, so that a changed byte shows wherever it is: in a file, or in
the list itself. A folder without the list is of an earlier version, and nothing is known of it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

HASHES_FILE = "hashes.json"
# Hashing leaves Python's lock, and reading waits for the disk.
_MAX_THREADS = 8

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def write_hashes(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write down what the files of a folder are: all of them, or those of the given names. Raises OSError."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    listed = sorted(set(names if names is not None else found) - {HASHES_FILE})
    hashes = dict(zip(listed, _in_parallel(_hash, [folder / name for name in listed]), strict=True))
    (folder / HASHES_FILE).write_text(json.dumps({"sha256": hashes}, indent=1) + "\n", encoding="utf-8")


def read_hashes(folder: Path) -> dict[str, str] | None:
    """SHA-256 of each listed file, by name; None where no hashes are recorded. Raises OSError, also for a bad list."""
    path = folder / HASHES_FILE
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))["sha256"]
        return {str(name): str(digest) for name, digest in listed.items()}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OSError(errno.EILSEQ, "it holds no list of hashes", str(path)) from error


def find_damage(folder: Path, report: Callable[[int], None] | None = None) -> list[str] | None:
    """Names of the files that are not what was written, or are gone; None where no hashes are recorded.

    Args:
        folder: of which all listed files are read.
        report: is told the bytes of each file that was read.
    """
    try:
        expected = read_hashes(folder)
    except OSError:
        return [HASHES_FILE]
    if expected is None:
        return None

    def is_damaged(name: str) -> bool:
        path = folder / name
        try:
            is_same = _hash(path) == expected[name]
            if report is not None:
                report(path.stat().st_size)
        except (OSError, ValueError):
            return True
        return not is_same

    return [name for name, damaged in zip(expected, _in_parallel(is_damaged, list(expected)), strict=True) if damaged]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _in_parallel(work: Callable[[_Item], _Answer], items: list[_Item]) -> list[_Answer]:
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as threads:
        return list(threads.map(work, items))
