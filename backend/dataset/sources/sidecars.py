"""Transcripts that came with recordings: which recording each belongs to, and its text.

`NAME.txt` next to `NAME.wav`; `metadata.csv` as LJSpeech has it (`id|text|normalised text`) or with a header; JSONL
with `audio` and `text`. JSONL and tables with a header may say in `style` how it is said. Names found in them are
compared with the recordings that are there and never opened.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from training.style_name import clean_style

SIDECAR_SUFFIXES = frozenset({".txt", ".csv", ".jsonl"})

_MAX_BYTES = 50_000_000
_AUDIO_COLUMNS = ("audio", "audio_file", "file_name", "file", "path", "id")
_TEXT_COLUMNS = ("text", "transcript", "transcription", "sentence")
_STYLE_COLUMN = "style"
# If several have the text of one recording, the last of these wins: it is the most specific.
_RANK = {".csv": 0, ".jsonl": 1, ".txt": 2}


@dataclass(frozen=True, kw_only=True)
class SidecarTranscript:
    """The given text of a recording; `source` is the file it came from, `style` how it is said, if that was given."""

    text: str
    source: str
    language: str | None = None
    style: str = ""


@dataclass(frozen=True, kw_only=True)
class SidecarEntry:
    """One line of a sidecar: `audio` is what it says the recording is called, `folder` where the sidecar lies.

    `has_any_place` is set for sidecars that were named by hand: their recordings may be in another folder.
    """

    audio: str
    folder: Path
    transcript: SidecarTranscript
    rank: int
    has_any_place: bool = False


@dataclass(frozen=True, kw_only=True)
class _Line:
    """What a line of a sidecar says of a recording."""

    audio: str
    text: str
    language: str | None = None
    style: str = ""


# JSON can write one, but no file or database can hold it.
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class SidecarUnreadable(ValueError):
    """A sidecar, or a line of it, cannot be understood; the message says what is wrong."""


def read_sidecar(path: Path, *, has_any_place: bool = False) -> tuple[list[SidecarEntry], list[str]]:
    """Read one sidecar file; returns its entries and the problems of its other lines.

    Raises:
        SidecarUnreadable: nothing of it can be used.
    """
    text = _read_text(path)
    suffix = path.suffix.lower()
    rows: Iterable[_Line | str]
    match suffix:
        case ".txt":
            rows = [_Line(audio=path.stem, text=text)]
        case ".jsonl":
            rows = _json_rows(text)
        case _:
            rows = _csv_rows(text)
    entries, problems = [], []
    for row in rows:
        if isinstance(row, str):
            problems.append(row)
            continue
        try:
            style = clean_style(row.style)
        except ValueError as error:
            problems.append(str(error).rstrip("."))
            style = ""
        if spoken := " ".join(row.text.split()):
            transcript = SidecarTranscript(text=spoken, source=path.name, language=row.language, style=style)
            rank = _RANK.get(suffix, 0)
            entries.append(
                SidecarEntry(
                    audio=row.audio, folder=path.parent, transcript=transcript, rank=rank, has_any_place=has_any_place
                )
            )
    return entries, problems


def match_sidecars(
    entries: Sequence[SidecarEntry], recordings: Sequence[Path]
) -> tuple[dict[Path, SidecarTranscript], list[SidecarEntry]]:
    """Find the recording of each entry: by the place it names, else by its bare name where only one bears it.

    Returns the transcripts by recording, and the entries that belong to none.
    """
    by_place: dict[str, list[Path]] = defaultdict(list)
    by_name: dict[str, list[Path]] = defaultdict(list)
    for recording in recordings:
        for key in {str(recording), str(recording.with_suffix(""))}:
            by_place[key].append(recording)
        for key in {recording.name, recording.stem}:
            by_name[key].append(recording)
    found: dict[Path, tuple[int, SidecarTranscript]] = {}
    lost = []
    for entry in entries:
        at_place = [recording for place in _places(entry) for recording in by_place.get(place, ())]
        for recording in at_place:
            _keep_nearest(found, recording, entry)
        if not at_place:
            lost.append(entry)
    unmatched = []
    placed = set(found)
    for entry in lost:
        name = entry.audio.replace("\\", "/").rpartition("/")[2]
        namesakes = [
            recording
            for recording in by_name.get(name, ())
            if entry.has_any_place or recording.is_relative_to(entry.folder)
        ]
        # A recording whose place was named is not the one that is looked for here.
        if len(namesakes) == 1 and namesakes[0] not in placed:
            _keep_nearest(found, namesakes[0], entry)
        else:
            unmatched.append(entry)
    return {recording: transcript for recording, (_, transcript) in found.items()}, unmatched


def _keep_nearest(found: dict[Path, tuple[int, SidecarTranscript]], recording: Path, entry: SidecarEntry) -> None:
    rank, nearest = found.get(recording, (entry.rank, entry.transcript))
    other = entry.transcript
    if rank <= entry.rank:
        rank, nearest, other = entry.rank, entry.transcript, nearest
    # A text beside the recording says nothing of its style, which a table may.
    found[recording] = rank, nearest if nearest.style else replace(nearest, style=other.style)


def _places(entry: SidecarEntry) -> Iterator[str]:
    """Where the recording of an entry may be, as plain text: the names are untrusted."""
    audio = entry.audio.replace("\\", "/")
    for folder in (entry.folder, entry.folder / "wavs"):
        yield os.path.normpath(os.path.join(folder, audio))


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SidecarUnreadable(f"is larger than {_MAX_BYTES / 1e6:g} MB")
        content = path.read_bytes()
    except OSError as error:
        raise SidecarUnreadable(f"cannot be read ({error.strerror})") from error
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise SidecarUnreadable("is not text in UTF-8; save it with that encoding") from error
    if "\0" in text:
        raise SidecarUnreadable("is not a text file")
    return text


def _json_rows(text: str) -> Iterator[_Line | str]:
    """What each line says, or what is wrong with the line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)  # Any: untrusted content
        except (ValueError, RecursionError):
            row = None
        audio, spoken = (row.get("audio"), row.get("text")) if isinstance(row, dict) else (None, None)
        if not isinstance(audio, str) or not isinstance(spoken, str):
            yield f'line {number} is not a JSON object with "audio" and "text"'
            continue
        language, style = row.get("language"), row.get("style")
        if any(_HALF_CHARACTER.search(part) for part in (audio, spoken, language, style) if isinstance(part, str)):
            yield f"line {number} holds half a character; write it anew"
            continue
        yield _Line(
            audio=audio,
            text=spoken,
            language=language if isinstance(language, str) and language else None,
            style=style if isinstance(style, str) else "",
        )


def _csv_rows(text: str) -> Iterator[_Line | str]:
    """The same of a table: LJSpeech's without a header and with bars, or one whose header names the columns."""
    lines = text.splitlines()
    first = lines[0] if lines else ""
    delimiter = "|" if "|" in first else "\t" if "\t" in first else ","
    names = [name.strip().lower() for name in first.split(delimiter)]
    audio_column = next((names.index(name) for name in _AUDIO_COLUMNS if name in names), None)
    text_column = next((names.index(name) for name in _TEXT_COLUMNS if name in names), None)
    style_column = names.index(_STYLE_COLUMN) if _STYLE_COLUMN in names else len(names)
    has_header = audio_column is not None and text_column is not None
    if not has_header and delimiter != "|":
        raise SidecarUnreadable(
            'is not a table of transcripts; lines must be "name|text", or a header has "audio" and "text"'
        )
    # In LJSpeech's form a quotation mark is only a quotation mark.
    quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL
    rows = csv.reader(lines[1:] if has_header else lines, delimiter=delimiter, quoting=quoting)
    try:
        for number, row in enumerate(rows, start=2 if has_header else 1):
            if not row:
                continue
            if audio_column is not None and text_column is not None and has_header:
                fields = [row[column] for column in (audio_column, text_column) if column < len(row)]
            else:
                # The third column is the text as it is spoken, with numbers and titles written out.
                fields = [row[0], next((field for field in row[2:3] if field.strip()), *row[1:2])] if row[1:] else []
            if len(fields) == 2 and fields[0].strip():
                style = row[style_column] if has_header and style_column < len(row) else ""
                yield _Line(audio=fields[0].strip(), text=fields[1], style=style)
            else:
                yield f"line {number} names no recording and text"
    except csv.Error as error:
        yield f"the rest is not a table ({error})"
