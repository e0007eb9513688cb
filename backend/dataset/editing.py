"""What a person changes about the clips of a dataset; each change is judged at once, the files follow on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from backend.dataset.build.assemble_clips import rejudge, rejudge_clip, with_cut
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.records import Span
from backend.dataset.clips.views import ClipDetails, TranscriptChange
from backend.dataset.errors import DatasetNotFound, EditRefused
from backend.dataset.review.review import choose, disagreement, is_usable
from backend.dataset.stages.cut import CutStage
from backend.dataset.stages.tokenize import TokenizeStage
from backend.dataset.stages.transcribe import listen
from backend.dataset.storage.dataset_table import ClipEdit, ClipRow, DatasetTable
from backend.dataset.storage.lock import dataset_lock
from backend.dataset.storage.training_files import write_dataset
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.store.database import Database
from backend.transcription.select import find_transcriber, language_code
from training.data.code_rows import DatasetCard

_MIN_CUT_SECONDS = 0.5


class DatasetEditing:
    """The edits of `Datasets`; each needs the dataset's lock, so none happens during a build."""

    def __init__(self, database: Database, home: Path) -> None:
        self._home = home
        self._table = DatasetTable(database)

    def overrule(self, name: str, key: str, verdict: Verdict | None) -> None:
        """Put a person's verdict above that of the gates; None takes it back.

        Raises:
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home, name):
            self._edit(name, key, lambda edit: replace(edit, verdict=verdict))

    def edit_text(self, name: str, key: str, text: str | None) -> None:
        """Replace what a clip says; None goes back to the text of the build.

        Raises:
            EditRefused: the text is empty.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        plain = None if text is None else " ".join(text.split())
        if plain == "":
            raise EditRefused("A clip needs a text. Type what is said in it, or reject the clip.")
        with dataset_lock(self._home, name):
            self._edit(name, key, lambda edit: replace(edit, text=plain))

    def move_cut(self, name: str, key: str, start_seconds: float, end_seconds: float) -> None:
        """Cut a clip elsewhere in its recording, times counted from the recording's start; the sound is made anew.

        Where the text is the transcriber's, it becomes the words that lie in the new cut.

        Raises:
            EditRefused: the cut is too short or outside of the recording.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home, name):
            details = self._clip(self._clips(name), name, key).details
            recording = next(
                found for found in self._table.recordings(name) if found.details.audio_id == details.recording_audio_id
            )
            total = recording.seconds or 0.0
            if not 0 <= start_seconds < end_seconds <= total + 0.01 or end_seconds - start_seconds < (_MIN_CUT_SECONDS):
                raise EditRefused(
                    f"{start_seconds:g} to {end_seconds:g} s cannot be cut from {recording.name}, which lasts "
                    f"{total:.1f} s. A clip needs {_MIN_CUT_SECONDS:g} s or more, inside of its recording."
                )
            span = Span(start_seconds=start_seconds, end_seconds=end_seconds)
            moved = with_cut(details, recording.details.heard, span, CutStage(self._workplace))
            self._edit(name, key, lambda edit: replace(edit, span=span), moved)

    def choose_reference(self, name: str, key: str | None) -> None:
        """Let a clip stand for the voice; None leaves the choice to the build again.

        Raises:
            EditRefused: the clip cannot be trained on.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home, name):
            rows = self._clips(name)
            if key is not None and not is_usable(self._clip(rows, name, key)):
                raise EditRefused(
                    "This clip is rejected or has no text or codes yet, so it cannot stand for the voice. "
                    "Accept it and rebuild the rows first, or choose another one."
                )
            self._table.choose_reference(name, key)
            self._table.update_clips(name, rows, choose(rows, key, self._table.job(name).gates))

    def rebuild_rows(self, name: str) -> DatasetCard:
        """Bring the files up to date with all edits; only clips whose sound has changed are tokenized again.

        Raises:
            NothingToBuild: no clip is left.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home, name):
            job, encoder = self._table.job(name), self._table.encoder(name)
            stage = TokenizeStage(self._workplace, encoder.identity)
            rows = self._table.clips(name)
            missing = [
                row.clip_id for row in rows if row.verdict is not Verdict.REJECTED and stage.find(row.clip_id) is None
            ]
            if missing:
                # Here: PyTorch takes seconds to load, and most verbs do without.
                from backend.dataset.stages.clip_encoder import ClipEncoder  # noqa: PLC0415 - see above

                stage.run(list(dict.fromkeys(missing)), ClipEncoder.load(Path(encoder.folder), job.device))
                rows = rejudge(job, self._table, {row.key: row.details for row in rows}, self._workplace, stage)
            card = write_dataset(self._workplace, job, encoder, rows)
            self._table.mark_rows(name, are_current=True)
            return card

    def retranscribe(
        self,
        name: str,
        keys: Sequence[str] | None = None,
        *,
        whisper: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[TranscriptChange]:
        """Listen again to some clips, or to all, and tell where something else is heard than their text says.

        Nothing is changed: take over what is right with `edit_text`. `progress` gets clips done and in all.

        Raises:
            EncoreError: there is no transcriber, or no such clip.
        """
        job = self._table.job(name).model_copy(update={"whisper": whisper} if whisper else {})
        rows = self._clips(name)
        if keys is not None:
            rows = [self._clip(rows, name, key) for key in keys]
        chosen = find_transcriber(job)
        if chosen.source is None:
            raise EditRefused(chosen.notice or "Nobody listens: name a Whisper model.")
        transcriber = chosen.source.load(job.device)
        changes = []
        for index, row in enumerate(rows):
            whole = Span(start_seconds=0.0, end_seconds=row.seconds)
            heard = listen(self._workplace, row.clip_id, whole, transcriber, language_code(job.language)).transcript
            if disagreement(row.details.text, heard.text) > 0:
                changes.append(
                    TranscriptChange(
                        key=row.key, before=row.details.text, after=heard.text, confidence=heard.confidence
                    )
                )
            if progress is not None:
                progress(index + 1, len(rows))
        return changes

    @property
    def _workplace(self) -> DatasetWorkspace:
        return DatasetWorkspace(self._home)

    def _clips(self, name: str) -> list[ClipRow]:
        self._table.job(name)
        return self._table.clips(name)

    def _clip(self, rows: Sequence[ClipRow], name: str, key: str) -> ClipRow:
        found = next((row for row in rows if row.key == key), None)
        if found is None:
            raise DatasetNotFound(f"The dataset {name} has no clip {key!r}. `app.py dataset show {name}` lists them.")
        return found

    def _edit(
        self, name: str, key: str, change: Callable[[ClipEdit], ClipEdit], details: ClipDetails | None = None
    ) -> None:
        """Remember what a person decided, and judge what it can have changed."""
        rows = self._clips(name)
        details = details or self._clip(rows, name, key).details
        self._table.save_edit(name, key, change(self._table.edits(name).get(key, ClipEdit())))
        stage = TokenizeStage(self._workplace, self._table.encoder(name).identity)
        rejudge_clip(self._table.job(name), self._table, rows, (key, details), self._workplace, stage)
