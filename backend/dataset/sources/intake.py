"""From what the user names to a list of recordings: files, folders, zip archives, and transcripts next to them.

Nothing is decoded here. A file that cannot be a recording becomes a row with the reason, and never stops the others.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from backend.audio.containers import sniff_container
from backend.audio.limits import DecodingLimits, recording_decoding
from backend.dataset.sources.archives import ARCHIVE_SUFFIXES, ArchiveLimits, unpack_archive
from backend.dataset.sources.sidecars import (
    SIDECAR_SUFFIXES,
    SidecarEntry,
    SidecarTranscript,
    SidecarUnreadable,
    match_sidecars,
    read_sidecar,
)
from backend.errors import RecordingError, RecordingNotAudio, RecordingNotFound, RecordingTooLarge

AUDIO_SUFFIXES = frozenset(
    ".wav .wave .flac .mp3 .ogg .oga .opus .m4a .m4b .aac .mp4 .m4v .mov .3gp .webm .mka .mkv".split()
)
"""In a folder these are taken for recordings whatever is in them: a broken one is reported, not overlooked."""

_MAX_LISTED_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class IntakeLimits:
    """How much is taken in at once; `decoding` bounds each recording."""

    decoding: DecodingLimits = field(default_factory=recording_decoding)
    archive: ArchiveLimits = field(default_factory=ArchiveLimits)
    max_files: int = 100_000


@dataclass(frozen=True, kw_only=True)
class RecordingFile:
    """A file that may hold sound, not yet decoded.

    Attributes:
        path: where it lies; for a member of an archive, where that was unpacked.
        name: what it is called for the user: `memos.zip/day 1/take.wav`.
        transcript: the text that came with it.
        given: the file, folder or archive among those named by the user in which it was found.
    """

    path: Path
    name: str
    transcript: SidecarTranscript | None = None
    given: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that was expected to be a recording and is not; `reason` is a whole sentence about `name`."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What was found: recordings in a fixed order, and what was left out."""

    recordings: tuple[RecordingFile, ...]
    problems: tuple[Problem, ...]


def expand(
    paths: Sequence[Path],
    work_folder: Path,
    *,
    transcripts: Sequence[Path] = (),
    limits: IntakeLimits | None = None,
) -> Intake:
    """Find all recordings in files, folders and zip archives, with their transcripts.

    Args:
        paths: what the user named.
        work_folder: where archives are unpacked; the caller removes it when the recordings have been read.
        transcripts: text files, tables or folders of them apart from the recordings.
        limits: how much is taken in.
    """
    search = _Search(work_folder, limits or IntakeLimits())
    for path in paths:
        search.add(path)
    for path in transcripts:
        search.add_transcripts(path)
    return search.result()


class _Search:
    """Collects what is found on the way through files and folders."""

    def __init__(self, work_folder: Path, limits: IntakeLimits) -> None:
        self._work_folder = work_folder
        self._limits = limits
        self._names: dict[Path, str] = {}
        self._given, self._given_by_path = Path(), dict[Path, Path]()
        self._entries: list[SidecarEntry] = []
        self._problems: list[Problem] = []
        self._num_archives = 0

    def add(self, path: Path) -> None:
        """Examine something the user named."""
        self._given = path
        name = _shown(path.name or str(path))
        suffix = path.suffix.lower()
        # os.path answers no where pathlib raises: names that are too long or hold a null byte.
        is_file = os.path.isfile(path)
        if os.path.isdir(path):
            self._add_folder(path, name)
        elif suffix == ".zip" and is_file:
            self._add_archive(path, name)
        elif suffix in SIDECAR_SUFFIXES and is_file and not _has_sound(path):
            self.add_transcripts(path)
        elif suffix in ARCHIVE_SUFFIXES and is_file:
            self._refuse(name, f"{name} is a kind of archive that is not unpacked here. Make it a zip archive.")
        else:
            self._add_file(path, name)
            beside = path.with_suffix(".txt")
            if os.path.isfile(beside) and beside != path and path.resolve() in self._names:
                self._read_sidecar(beside, _shown(beside.name))

    def add_transcripts(self, path: Path) -> None:
        """Read transcripts whose recordings may lie elsewhere."""
        files = sorted(path.rglob("*")) if os.path.isdir(path) else [path]
        for file in files:
            if file == path or (file.suffix.lower() in SIDECAR_SUFFIXES and file.is_file()):
                self._read_sidecar(file, _shown(file.name), has_any_place=True)

    def result(self) -> Intake:
        """What was found, each recording with the text that belongs to it."""
        transcripts, unmatched = match_sidecars(self._entries, list(self._names))
        self._report_unmatched(unmatched)
        recordings = (
            RecordingFile(path=path, name=name, transcript=transcripts.get(path), given=self._given_by_path.get(path))
            for path, name in self._names.items()
        )
        return Intake(recordings=tuple(recordings), problems=tuple(self._problems))

    def _add_folder(self, folder: Path, name: str) -> None:
        num_before = len(self._names), len(self._problems)
        sidecars = []
        for file in self._walk(folder, name):
            shown = f"{name}/{_shown(str(file.relative_to(folder)))}"
            suffix = file.suffix.lower()
            if suffix == ".zip":
                self._add_archive(file, shown)
            elif suffix in SIDECAR_SUFFIXES:
                sidecars.append((file, shown))
            elif suffix in AUDIO_SUFFIXES or _has_sound(file):
                self._add_file(file, shown)
        stems = {path.with_suffix("") for path in self._names}
        for file, shown in sidecars:
            # Only text files that belong to a recording, not a README.
            if file.suffix.lower() != ".txt" or file.with_suffix("") in stems:
                self._read_sidecar(file, shown)
        if (len(self._names), len(self._problems)) == num_before:
            self._refuse(name, f"{name} holds no recordings. Choose one with WAV, FLAC, MP3, OGG, M4A or WebM files.")

    def _walk(self, folder: Path, name: str) -> Iterator[Path]:
        """All files below `folder` in a fixed order, without hidden ones and without leaving it by a link."""
        root = folder.resolve()
        num_files = 0
        for place, folders, files in os.walk(folder, onerror=self._refuse_folder):
            folders[:] = sorted(each for each in folders if not each.startswith(".") and each != "__MACOSX")
            for file in sorted(each for each in files if not each.startswith(".")):
                num_files += 1
                if num_files > self._limits.max_files:
                    most = self._limits.max_files
                    self._refuse(name, f"{name} holds more than {most} files; the rest was left out.")
                    return
                path = Path(place, file)
                if path.is_symlink() and not path.resolve().is_relative_to(root):
                    self._refuse(f"{name}/{_shown(file)}", f"{_shown(file)} is a link that leads out of its folder.")
                else:
                    yield path

    def _add_archive(self, path: Path, name: str) -> None:
        self._num_archives += 1
        folder = self._work_folder / f"archive-{self._num_archives:04}"
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        except OSError as error:
            self._refuse(name, f"{name} cannot be unpacked ({error.strerror}). Free some space and try again.")
            return
        refused = unpack_archive(path, folder, _is_wanted, self._limits.archive)
        for entry in refused:
            shown = f"{name}/{_shown(entry.name)}" if entry.name else name
            self._refuse(shown, f"{shown} {entry.problem}.")
        if not refused or any(folder.iterdir()):
            self._add_folder(folder, name)

    def _add_file(self, path: Path, name: str) -> None:
        """Take a file for a recording if nothing speaks against it at first sight."""
        try:
            _check(path, name, self._limits.decoding)
        except RecordingError as error:
            self._refuse(name, str(error))
        else:
            self._names.setdefault(path.resolve(), name)
            self._given_by_path.setdefault(path.resolve(), self._given)

    def _read_sidecar(self, path: Path, name: str, *, has_any_place: bool = False) -> None:
        try:
            entries, problems = read_sidecar(path.resolve(), has_any_place=has_any_place)
        except SidecarUnreadable as error:
            self._refuse(name, f"{name} {error}.")
            return
        self._entries.extend(entries)
        if problems:
            more = f" and {len(problems) - 1} more lines" if len(problems) > 1 else ""
            self._refuse(name, f"{name}: {problems[0]}{more}.")

    def _report_unmatched(self, unmatched: list[SidecarEntry]) -> None:
        by_source: dict[str, list[str]] = {}
        for entry in unmatched:
            by_source.setdefault(entry.transcript.source, []).append(_shown(entry.audio))
        for source, names in by_source.items():
            listed = ", ".join(names[:_MAX_LISTED_NAMES]) + (", …" if len(names) > _MAX_LISTED_NAMES else "")
            absent = "a recording that is" if len(names) == 1 else f"{len(names)} recordings that are"
            reason = f"{_shown(source)} has text for {absent} not there: {listed}."
            self._refuse(_shown(source), reason)

    def _refuse(self, name: str, reason: str) -> None:
        self._problems.append(Problem(name=name, reason=reason))

    def _refuse_folder(self, error: OSError) -> None:
        name = _shown(Path(str(error.filename)).name)
        self._refuse(name, f"{name} cannot be opened ({error.strerror}).")


def _check(path: Path, name: str, limits: DecodingLimits) -> None:
    """Refuse what cannot be a recording by its size or first bytes.

    Raises:
        RecordingError: why.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RecordingNotFound(name, problem="is not a regular file")
        if status.st_size == 0:
            raise RecordingNotAudio(name, problem="is empty")
        if status.st_size > limits.max_bytes:
            raise RecordingTooLarge(name, num_bytes=status.st_size, max_bytes=limits.max_bytes)
        with path.open("rb") as file:
            if sniff_container(file) is None:
                raise RecordingNotAudio(name)
    except FileNotFoundError:
        raise RecordingNotFound(name, problem="does not exist") from None
    except (OSError, ValueError) as error:
        problem = f"cannot be opened ({getattr(error, 'strerror', None) or error})"
        raise RecordingNotFound(name, problem=problem) from error


def _has_sound(path: Path) -> bool:
    """Whether a file with a name that does not say so begins like a recording."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            return sniff_container(file) is not None
    except OSError:
        return False


def _is_wanted(name: str, head: bytes) -> bool:
    """Whether to unpack a file: recordings, transcripts, and archives, which are then refused by name."""
    suffix = os.path.splitext(name)[1].lower()
    wanted = AUDIO_SUFFIXES | SIDECAR_SUFFIXES | ARCHIVE_SUFFIXES
    return suffix in wanted or sniff_container(BytesIO(head)) is not None


def _shown(name: str) -> str:
    """A file name that can be printed and stored: broken bytes and control characters become question marks."""
    printable = os.fsencode(name).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in printable)
