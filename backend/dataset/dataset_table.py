"""Datasets in the database: requests, recordings, clips, and what people decided about them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from backend.dataset.errors import DatasetNotFound
from backend.dataset.gates import Verdict
from backend.dataset.job import BuildJob
from backend.dataset.records import EncoderFacts, Span
from backend.dataset.views import ClipDetails, RecordingDetails, RecordingView
from backend.store.database import Database

_CLIPS_REMEMBERED = 8192
"""Of thousands of clips an edit changes one or two; what the others say is read, but not taken apart again."""


@dataclass(frozen=True, kw_only=True)
class ClipRow:
    """One clip as it is stored; paths and the rest of a `ClipView` are added when it is shown."""

    key: str
    clip_id: str
    seconds: float
    verdict: Verdict
    held_out: bool
    is_reference: bool
    details: ClipDetails


@dataclass(frozen=True, kw_only=True)
class ClipEdit:
    """What a person decided about a clip; None leaves it to the build."""

    text: str | None = None
    verdict: Verdict | None = None
    span: Span | None = None


class DatasetTable:
    """Reads and writes the rows of datasets; who may write when is decided by `dataset_lock`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save_job(self, job: BuildJob) -> None:
        """Remember what was asked for; an older request of the same name is replaced, edits are kept."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO datasets (name, job) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET job = excluded.job",
                (job.name, job.model_dump_json()),
            )

    def job(self, name: str) -> BuildJob:
        """What was asked for. Raises DatasetNotFound."""
        return BuildJob.model_validate_json(self._dataset(name)["job"])

    def names(self) -> list[str]:
        """All datasets, the newest first."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name FROM datasets ORDER BY created_at DESC, rowid DESC")
            return [row["name"] for row in rows]

    def delete(self, name: str) -> None:
        """Forget a dataset with everything that was decided about it."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM datasets WHERE name = ?", (name,))

    def save_encoder(self, name: str, encoder: EncoderFacts) -> None:
        """Remember which model listened."""
        self._set(name, "encoder", encoder.model_dump_json())

    def encoder(self, name: str) -> EncoderFacts:
        """Which model listened in the last build. Raises DatasetNotFound where none has got that far."""
        stored = self._dataset(name)["encoder"]
        if stored is None:
            raise DatasetNotFound(f"The dataset {name} was never built to the end. Build it again.")
        return EncoderFacts.model_validate_json(stored)

    def rows_are_current(self, name: str) -> bool:
        """Whether the files reflect all edits."""
        return bool(self._dataset(name)["rows_are_current"])

    def mark_rows(self, name: str, *, are_current: bool) -> None:
        """Remember whether the files reflect all edits."""
        self._set(name, "rows_are_current", int(are_current))

    def chosen_reference(self, name: str) -> str | None:
        """Key of the clip that a person chose to stand for the voice."""
        key: str | None = self._dataset(name)["chosen_reference_key"]
        return key

    def choose_reference(self, name: str, key: str | None) -> None:
        """Remember a person's choice; None leaves it to the build again."""
        self._set(name, "chosen_reference_key", key)

    def save_recordings(self, name: str, recordings: Sequence[RecordingView]) -> None:
        """Replace what is known about the recordings of a dataset."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM dataset_recordings WHERE dataset = ?", (name,))
            connection.executemany(
                "INSERT INTO dataset_recordings "
                "(dataset, position, name, recording_id, seconds, num_clips, problem, details) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [_recording_values(name, position, recording) for position, recording in enumerate(recordings)],
            )

    def recordings(self, name: str) -> tuple[RecordingView, ...]:
        """The recordings of a dataset, in the order they were given."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name, recording_id, seconds, num_clips, problem, details FROM dataset_recordings "
                "WHERE dataset = ? ORDER BY position",
                (name,),
            )
            return tuple(_recording(row) for row in rows)

    def save_clips(self, name: str, clips: Sequence[ClipRow]) -> None:
        """Replace the clips of a dataset, and remember that the files do not reflect them yet."""
        before = self.clips(name)
        with self._database.transaction() as connection:
            if [clip.key for clip in before] == [clip.key for clip in clips]:
                changed = [position for position, clip in enumerate(clips) if clip != before[position]]
            else:
                connection.execute("DELETE FROM dataset_clips WHERE dataset = ?", (name,))
                changed = list(range(len(clips)))
            connection.executemany(
                "INSERT OR REPLACE INTO dataset_clips "
                "(dataset, key, position, clip_id, verdict, held_out, is_reference, seconds, details) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [_clip_values(name, position, clips[position]) for position in changed],
            )
            connection.execute("UPDATE datasets SET rows_are_current = 0 WHERE name = ?", (name,))

    def clips(self, name: str) -> list[ClipRow]:
        """The clips of a dataset, in the order of their recordings."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM dataset_clips WHERE dataset = ? ORDER BY position", (name,))
            return [_clip_row(row) for row in rows]

    def edits(self, name: str) -> dict[str, ClipEdit]:
        """What people decided, by clip."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM dataset_edits WHERE dataset = ?", (name,))
            return {row["key"]: _edit(row) for row in rows}

    def save_edit(self, name: str, key: str, edit: ClipEdit) -> None:
        """Replace what a person decided about a clip."""
        span = edit.span
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO dataset_edits (dataset, key, text, verdict, start_seconds, end_seconds) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    name,
                    key,
                    edit.text,
                    edit.verdict,
                    span.start_seconds if span else None,
                    span.end_seconds if span else None,
                ),
            )

    def _dataset(self, name: str) -> sqlite3.Row:
        with self._database.reading() as connection:
            row: sqlite3.Row | None = connection.execute("SELECT * FROM datasets WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise DatasetNotFound(f"There is no dataset {name!r}. Build one with `app.py dataset build`.")
        return row

    def _set(self, name: str, column: str, value: str | int | None) -> None:
        with self._database.transaction() as connection:
            connection.execute(f"UPDATE datasets SET {column} = ? WHERE name = ?", (value, name))


def _recording_values(dataset: str, position: int, recording: RecordingView) -> tuple[str | int | float | None, ...]:
    return (
        dataset,
        position,
        recording.name,
        recording.recording_id,
        recording.seconds,
        recording.num_clips,
        recording.problem,
        recording.details.model_dump_json(),
    )


def _recording(row: sqlite3.Row) -> RecordingView:
    return RecordingView(**(dict(row) | {"details": RecordingDetails.model_validate_json(row["details"])}))


def _clip_values(dataset: str, position: int, clip: ClipRow) -> tuple[str | int | float, ...]:
    return (
        dataset,
        clip.key,
        position,
        clip.clip_id,
        clip.verdict,
        int(clip.held_out),
        int(clip.is_reference),
        clip.seconds,
        clip.details.model_dump_json(),
    )


def _clip_row(row: sqlite3.Row) -> ClipRow:
    return ClipRow(
        key=row["key"],
        clip_id=row["clip_id"],
        seconds=row["seconds"],
        verdict=Verdict(row["verdict"]),
        held_out=bool(row["held_out"]),
        is_reference=bool(row["is_reference"]),
        details=_details(row["details"]),
    )


@lru_cache(maxsize=_CLIPS_REMEMBERED)
def _details(stored: str) -> ClipDetails:
    return ClipDetails.model_validate_json(stored)


def _edit(row: sqlite3.Row) -> ClipEdit:
    has_span = row["start_seconds"] is not None
    return ClipEdit(
        text=row["text"],
        verdict=Verdict(row["verdict"]) if row["verdict"] is not None else None,
        span=Span(start_seconds=row["start_seconds"], end_seconds=row["end_seconds"]) if has_span else None,
    )
