"""Datasets in the database: requests, recordings, clips, and what users decided about them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from backend.audio.span import Span
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.gates import GateResult, Verdict
from backend.dataset.clips.stage_results import EncoderFacts
from backend.dataset.clips.views import ClipDetails, ClipEdit, ClipRow, RecordingDetails, RecordingView
from backend.dataset.errors import DatasetNotFound
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.store.home import Home
from backend.store.rows import understanding

_CLIPS_REMEMBERED = 8192
"""Of thousands of clips an edit changes one or two; the others are read but not parsed again."""


class _Review(BaseModel):
    """The fields of `ClipDetails` that an edit of another clip may change; stored separately."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gates: tuple[GateResult, ...] = ()
    own_verdict: Verdict = Verdict.ACCEPTED
    distance: float | None = None


_REVIEWED = set(_Review.model_fields)


class DatasetTable:
    """Reads and writes the rows of datasets; who may write when is decided by `dataset_lock`."""

    def __init__(self, home: Home) -> None:
        self._database = home.database
        self._workspace = DatasetWorkspace(home.folder)

    def save_job(self, job: BuildJob) -> None:
        """Remember what was asked for; an older request of the same name is replaced, edits are kept.

        Consents are not kept with it: they belong to recordings as they were, and a folder may hold others later.
        """
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO datasets (name, job) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET job = excluded.job",
                (job.name, job.model_dump_json(exclude={"consents"})),
            )

    def job(self, name: str) -> BuildJob:
        """What was asked for. Raises DatasetNotFound."""
        stored = self._dataset(name)["job"]
        with understanding(f"the dataset {name}"):
            return BuildJob.model_validate_json(stored)

    def names(self) -> list[str]:
        """All datasets, the newest first."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name FROM datasets ORDER BY created_at DESC, rowid DESC")
            return [row["name"] for row in rows]

    def save_encoder(self, name: str, encoder: EncoderFacts) -> None:
        """Remember which model encoded the clips."""
        self._set(name, "encoder", encoder.model_dump_json())

    def encoder(self, name: str) -> EncoderFacts:
        """The model that encoded the clips in the last build. Raises DatasetNotFound if none got that far."""
        stored = self._dataset(name)["encoder"]
        if stored is None:
            raise DatasetNotFound(f"The dataset {name} was never built to the end. Build it again.")
        return EncoderFacts.model_validate_json(stored)

    def rows_are_current(self, name: str) -> bool:
        """Whether the files reflect all edits."""
        return bool(self._dataset(name)["rows_are_current"])

    def mark_rows(self, name: str, *, are_current: bool) -> None:
        """Remember whether the files reflect all edits."""
        with self._database.transaction() as connection:
            _mark_rows(connection, name, are_current=are_current)

    def chosen_reference(self, name: str) -> str | None:
        """Key of the clip that the user chose as reference."""
        key: str | None = self._dataset(name)["chosen_reference_key"]
        return key

    def choose_reference(self, name: str, key: str | None) -> None:
        """Remember the user's choice; None leaves it to the build again."""
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
        if [clip.key for clip in before] == [clip.key for clip in clips]:
            self.update_clips(name, before, clips)
            return
        with self._database.transaction() as connection:
            for table in ("dataset_clips", "dataset_reviews"):
                connection.execute(f"DELETE FROM {table} WHERE dataset = ?", (name,))
            _write_clips(connection, name, enumerate(clips))
            _write_reviews(connection, name, clips)
            _mark_rows(connection, name, are_current=False)

    def update_clips(self, name: str, before: Sequence[ClipRow], clips: Sequence[ClipRow]) -> None:
        """The same for clips stored as `before`, with the same keys: only what has changed is written."""
        changed = [
            (position, clip, was)
            for position, (clip, was) in enumerate(zip(clips, before, strict=True))
            if clip is not was and clip != was
        ]
        with self._database.transaction() as connection:
            _write_clips(
                connection,
                name,
                ((position, clip) for position, clip, was in changed if _unreviewed(clip) != _unreviewed(was)),
            )
            _write_reviews(connection, name, [clip for _, clip, _ in changed])
            _mark_rows(connection, name, are_current=False)

    def clips(self, name: str) -> list[ClipRow]:
        """The clips of a dataset, in the order of their recordings."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT dataset_clips.*, review FROM dataset_clips "
                "LEFT JOIN dataset_reviews USING (dataset, key) WHERE dataset = ? ORDER BY position",
                (name,),
            )
            return [_clip_row(row, self._workspace.wav(row["clip_id"])) for row in rows]

    def edits(self, name: str) -> dict[str, ClipEdit]:
        """What the user decided, by clip."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM dataset_edits WHERE dataset = ?", (name,))
            return {row["key"]: _edit(row) for row in rows}

    def save_edit(self, name: str, key: str, edit: ClipEdit) -> None:
        """Replace what the user decided about a clip."""
        self.save_edits(name, {key: edit})

    def save_edits(self, name: str, edits: Mapping[str, ClipEdit]) -> None:
        """The same for many clips, by their keys."""
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO dataset_edits (dataset, key, text, verdict, start_seconds, end_seconds, style) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        name,
                        key,
                        edit.text,
                        edit.verdict,
                        edit.span.start_seconds if edit.span else None,
                        edit.span.end_seconds if edit.span else None,
                        edit.style,
                    )
                    for key, edit in edits.items()
                ],
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
    with understanding("a recording of a dataset"):
        return RecordingView(**(dict(row) | {"details": RecordingDetails.model_validate_json(row["details"])}))


def _write_clips(connection: sqlite3.Connection, dataset: str, clips: Iterable[tuple[int, ClipRow]]) -> None:
    """Store clips by their positions, without what the gates say of them."""
    connection.executemany(
        "INSERT OR REPLACE INTO dataset_clips "
        "(dataset, key, position, clip_id, verdict, held_out, is_reference, seconds, details) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                dataset,
                clip.key,
                position,
                clip.clip_id,
                clip.verdict,
                int(clip.held_out),
                int(clip.is_reference),
                clip.seconds,
                clip.details.model_dump_json(exclude=_REVIEWED),
            )
            for position, clip in clips
        ),
    )


def _write_reviews(connection: sqlite3.Connection, dataset: str, clips: Iterable[ClipRow]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO dataset_reviews (dataset, key, review) VALUES (?, ?, ?)",
        ((dataset, clip.key, clip.details.model_dump_json(include=_REVIEWED)) for clip in clips),
    )


def _mark_rows(connection: sqlite3.Connection, dataset: str, *, are_current: bool) -> None:
    connection.execute("UPDATE datasets SET rows_are_current = ? WHERE name = ?", (int(are_current), dataset))


def _unreviewed(clip: ClipRow) -> ClipRow:
    return replace(clip, details=clip.details.model_copy(update=dict(_Review())))


def _clip_row(row: sqlite3.Row, audio: Path) -> ClipRow:
    details = _details(row["details"])
    # Earlier versions stored it among the details.
    if row["review"] is not None:
        details = details.model_copy(update=_review(row["review"]))
    return ClipRow(
        key=row["key"],
        clip_id=row["clip_id"],
        seconds=row["seconds"],
        verdict=Verdict(row["verdict"]),
        held_out=bool(row["held_out"]),
        is_reference=bool(row["is_reference"]),
        audio=audio,
        details=details,
    )


@lru_cache(maxsize=_CLIPS_REMEMBERED)
def _details(stored: str) -> ClipDetails:
    with understanding("a clip of a dataset"):
        return ClipDetails.model_validate_json(stored)


@lru_cache(maxsize=_CLIPS_REMEMBERED)
def _review(stored: str) -> dict[str, object]:
    return dict(_Review.model_validate_json(stored))


def _edit(row: sqlite3.Row) -> ClipEdit:
    has_span = row["start_seconds"] is not None
    return ClipEdit(
        text=row["text"],
        verdict=Verdict(row["verdict"]) if row["verdict"] is not None else None,
        span=Span(start_seconds=row["start_seconds"], end_seconds=row["end_seconds"]) if has_span else None,
        style=row["style"],
    )
