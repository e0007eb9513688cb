"""Unpacks untrusted zip archives into a folder, and refuses path traversal, bombs and encrypted files."""

from __future__ import annotations

import io
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

ARCHIVE_SUFFIXES = frozenset({".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar", ".zst"})

_COPY_BYTES = 1 << 20
_HEAD_BYTES = 1 << 12
# Of one entry in the directory of an archive: 46 bytes, a name, and extras of many kinds.
_MAX_DIRECTORY_BYTES_PER_ENTRY = 1_000
# The end record has 22 bytes, and a comment of up to 64 kB may follow it.
_END_RECORD = struct.Struct("<4s4H2LH")
_MAX_COMMENT_LENGTH = 1 << 16
_IN_64_BITS = 0xFFFF_FFFF
_ENCRYPTED = 0x1


@dataclass(frozen=True, kw_only=True)
class ArchiveLimits:
    """How much one archive may unpack to. Its headers are not trusted: bytes are counted as they come."""

    max_entries: int = 20_000
    max_entry_bytes: int = 500_000_000
    max_total_bytes: int = 20_000_000_000
    # Of the disk, so that other programs on this machine can continue.
    reserve_bytes: int = 256_000_000


@dataclass(frozen=True, kw_only=True)
class RefusedEntry:
    """A file in an archive that was left there, or the archive itself where `name` is empty."""

    name: str
    problem: str


class _Full(Exception):
    """Nothing more can be unpacked."""


def unpack_archive(
    path: Path,
    folder: Path,
    is_wanted: Callable[[str, bytes], bool],
    limits: ArchiveLimits | None = None,
) -> list[RefusedEntry]:
    """Unpack the wanted files of the zip archive at `path` into `folder`; return what was refused, with reasons.

    Args:
        path: the archive.
        folder: an empty folder of the caller's; nothing is written outside of it.
        is_wanted: gets the name and first bytes of a file; returns whether to unpack it.
        limits: how much may come out.
    """
    limits = limits or ArchiveLimits()
    try:
        with path.open("rb") as file:
            if _directory_bytes(file) > limits.max_entries * _MAX_DIRECTORY_BYTES_PER_ENTRY:
                return [_refuse_archive(f"holds more than {limits.max_entries} files")]
            with zipfile.ZipFile(file) as archive:
                return _Unpacking(archive, folder, is_wanted, limits).run()
    except (zipfile.BadZipFile, EOFError, struct.error, ValueError, NotImplementedError):
        return [_refuse_archive("is not a zip archive, or it is damaged")]
    except OSError as error:
        return [_refuse_archive(f"cannot be read ({error.strerror or error})")]


class _Unpacking:
    """One archive on its way into a folder."""

    def __init__(
        self, archive: zipfile.ZipFile, folder: Path, is_wanted: Callable[[str, bytes], bool], limits: ArchiveLimits
    ) -> None:
        self._archive = archive
        self._folder = folder
        self._is_wanted = is_wanted
        self._limits = limits
        self._num_bytes = 0
        self._refused: list[RefusedEntry] = []

    def run(self) -> list[RefusedEntry]:
        """Unpack the accepted files; returns what was refused."""
        # Not `is_dir`, which fails for an entry without a name.
        entries = [entry for entry in self._archive.infolist() if not entry.filename.endswith("/")]
        if len(entries) > self._limits.max_entries:
            return [_refuse_archive(f"holds {len(entries)} files; at most {self._limits.max_entries} are accepted")]
        for entry in sorted(entries, key=lambda entry: entry.filename):
            name = PurePosixPath(entry.filename)
            leads_out = name.is_absolute() or ".." in name.parts or "\\" in entry.filename or not name.parts
            is_hidden = any(part.startswith(".") for part in name.parts) or "__MACOSX" in name.parts
            if is_hidden and not leads_out:
                continue  # what file managers leave behind
            problem = "has a name that leads out of the archive" if leads_out else _problem_of(entry)
            try:
                problem = problem or self._unpack(entry, self._folder.joinpath(*name.parts))
            except _Full as full:
                self._refused.append(_refuse_archive(str(full)))
                break
            if problem:
                self._refused.append(RefusedEntry(name=entry.filename or "(no name)", problem=problem))
        return self._refused

    def _unpack(self, entry: zipfile.ZipInfo, target: Path) -> str | None:
        """Write one file; return why not, if not."""
        try:
            with self._archive.open(entry) as source:
                head = source.read(_HEAD_BYTES)
                if not self._is_wanted(entry.filename, head):
                    return None
                if target.suffix.lower() in ARCHIVE_SUFFIXES or zipfile.is_zipfile(io.BytesIO(head)):
                    return "is an archive inside an archive; unpack it first"
                return self._write(target, head, source)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError):
            return "is damaged in the archive; make the archive anew"

    def _write(self, target: Path, head: bytes, source: IO[bytes]) -> str | None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            output = target.open("xb")
        except FileExistsError:
            return "is in the archive twice"
        except OSError as error:
            return f"cannot be unpacked under its name ({error.strerror})"
        with output:
            try:
                num_bytes = self._copy(head, source, output)
            except OSError as error:
                target.unlink()
                raise _Full(f"cannot be unpacked ({error.strerror}); free some space and try again") from error
            except (_Full, zipfile.BadZipFile, zlib.error, EOFError):
                target.unlink()
                raise
        if num_bytes > self._limits.max_entry_bytes:
            target.unlink()
            return f"unpacks to more than {self._limits.max_entry_bytes / 1e6:g} MB"
        return None

    def _copy(self, head: bytes, source: IO[bytes], output: BinaryIO) -> int:
        """Copy until the end or until there is too much of it; return how much came."""
        num_bytes, block = 0, head
        while block and num_bytes <= self._limits.max_entry_bytes:
            num_bytes += len(block)
            self._num_bytes += len(block)
            if self._num_bytes > self._limits.max_total_bytes:
                max_mb = self._limits.max_total_bytes / 1e6
                raise _Full(f"unpacks to more than {max_mb:g} MB; the rest was left out")
            if shutil.disk_usage(self._folder).free < self._limits.reserve_bytes:
                raise _Full("would fill the disk; free some space and try again")
            output.write(block)
            block = source.read(_COPY_BYTES)
        return num_bytes


def _problem_of(entry: zipfile.ZipInfo) -> str | None:
    """What is wrong with a file before it is even opened."""
    if entry.flag_bits & _ENCRYPTED:
        return "is locked with a password; make an archive without one"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # The others let the archive say how much memory it takes to unpack it.
        return "is compressed in an unusual way; make an ordinary zip archive"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link, not a file"
    return None


def _directory_bytes(file: BinaryIO) -> int:
    """How large the archive's directory is, which `zipfile` reads whole; leaves the position at the start."""
    num_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, num_bytes - _MAX_COMMENT_LENGTH - _END_RECORD.size))
    tail = file.read()
    file.seek(0)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END_RECORD.size:
        raise zipfile.BadZipFile
    directory_bytes: int = _END_RECORD.unpack_from(tail, at)[5]
    if directory_bytes != _IN_64_BITS:
        return directory_bytes
    # The 64-bit end record comes before it; without one, `zipfile` could not read the archive either.
    at = tail.rfind(b"PK\x06\x06", 0, at)
    if at < 0:
        raise zipfile.BadZipFile
    (directory_bytes,) = struct.unpack_from("<Q", tail, at + 40)
    return directory_bytes


def _refuse_archive(problem: str) -> RefusedEntry:
    return RefusedEntry(name="", problem=problem)
