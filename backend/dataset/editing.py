"""Edits of the clips of a dataset: verdicts follow at once, the training files on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backend.audio.span import Span
from backend.dataset.build.assemble_clips import review_change, review_clips, with_cut
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.views import ClipDetails, ClipEdit, ClipRow, TranscriptChange
from backend.dataset.errors import DatasetNotFound, EditInvalid
from backend.dataset.stages.tokenize import lookup_tokenized, tokenize_clips
from backend.dataset.stages.transcribe import transcribe_piece
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.lock import dataset_lock
from backend.dataset.storage.training_files import write_dataset
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.dataset.verdicts.decide_verdicts import mark_selection
from backend.store.home import Home
from backend.transcription.select_transcriber import language_code, select_transcriber
from backend.transcription.text_difference import text_errors
from training.data.code_rows import DatasetCard
from training.style_name import clean_style

_MIN_CUT_SECONDS = 0.5


class DatasetEditing:
    """The edits of `Datasets`; each needs the dataset's lock, so none happens during a build."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._table = DatasetTable(home)

    def overrule(self, name: str, key: str, verdict: Verdict | None) -> None:
        """Overrule the gates with the user's verdict; None takes it back.

        Raises:
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home.folder, name):
            self._edit(name, key, lambda edit: replace(edit, verdict=verdict))

    def overrule_all(self, name: str, verdicts: Mapping[str, Verdict | None]) -> dict[str, Verdict | None]:
        """The same for many clips at once, by their keys; returns what the user had said of them before.

        Raises:
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home.folder, name):
            rows = {row.key: row for row in self._clips(name)}
            gone = verdicts.keys() - rows.keys()
            if gone:
                self._clip((), name, min(gone))
            edits = self._table.edits(name)
            before = {key: edits.get(key, ClipEdit()) for key in verdicts}
            self._table.save_edits(
                name, {key: replace(before[key], verdict=verdict) for key, verdict in verdicts.items()}
            )
            review_clips(
                self._table.job(name),
                self._table,
                {key: row.details for key, row in rows.items()},
                self._workspace,
                self._table.encoder(name).identity,
            )
            return {key: edit.verdict for key, edit in before.items()}

    def edit_text(self, name: str, key: str, text: str | None) -> None:
        """Replace the text of a clip; None restores that of the build.

        Raises:
            EditInvalid: the text is empty.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        plain = None if text is None else " ".join(text.split())
        if plain == "":
            raise EditInvalid("A clip needs a text. Type what is said in it, or reject the clip.")
        with dataset_lock(self._home.folder, name):
            self._edit(name, key, lambda edit: replace(edit, text=plain))

    def set_styles(self, name: str, styles: Mapping[str, str | None]) -> dict[str, str | None]:
        """Say of clips, by their keys, how they are spoken; empty for none, None for what came with the recording.

        No verdict depends on it, so nothing is reviewed.

        Returns:
            What the user had said of them before.

        Raises:
            EditInvalid: a word cannot be a style.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        wanted = {key: None if word is None else _style(word) for key, word in styles.items()}
        with dataset_lock(self._home.folder, name):
            rows = self._clips(name)
            for key in wanted:
                self._clip(rows, name, key)
            edits = self._table.edits(name)
            before = {key: edits.get(key, ClipEdit()) for key in wanted}
            self._table.save_edits(name, {key: replace(before[key], style=wanted[key]) for key in wanted})
            after = [_with_style(row, wanted[row.key]) if row.key in wanted else row for row in rows]
            if after != rows:
                self._table.update_clips(name, rows, after)
            return {key: edit.style for key, edit in before.items()}

    def move_cut(self, name: str, key: str, start_seconds: float, end_seconds: float) -> None:
        """Move the cut of a clip, with times counted from the start of its recording.

        A text from the transcript becomes the words within the new cut.

        Raises:
            EditInvalid: the cut is too short or outside of the recording.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home.folder, name):
            details = self._clip(self._clips(name), name, key).details
            recording = next(
                found for found in self._table.recordings(name) if found.details.audio_id == details.recording_audio_id
            )
            total = recording.seconds or 0.0
            if not 0 <= start_seconds < end_seconds <= total + 0.01 or end_seconds - start_seconds < _MIN_CUT_SECONDS:
                raise EditInvalid(
                    f"{start_seconds:g} to {end_seconds:g} s cannot be cut from {recording.name}, which lasts "
                    f"{total:.1f} s. A clip needs {_MIN_CUT_SECONDS:g} s or more, within its recording."
                )
            span = Span(start_seconds=start_seconds, end_seconds=end_seconds)
            moved = with_cut(self._workspace, details, recording.details.heard, span)
            self._edit(name, key, lambda edit: replace(edit, span=span), moved)

    def choose_reference(self, name: str, key: str | None) -> None:
        """Choose the reference clip; None leaves the choice to the build again.

        Raises:
            EditInvalid: the clip cannot be trained on.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home.folder, name):
            rows = self._clips(name)
            if key is not None and not self._clip(rows, name, key).is_usable:
                raise EditInvalid(
                    "This clip is rejected or has no text or codes yet, so it cannot be the reference clip. "
                    "Accept it and rebuild the rows first, or choose another one."
                )
            self._table.choose_reference(name, key)
            self._table.update_clips(name, rows, mark_selection(rows, key, self._table.job(name).gates))

    def rebuild_rows(self, name: str) -> DatasetCard:
        """Bring the files up to date with all edits.

        Only clips whose sound has changed are tokenized again; all of them, if the model's encoders have changed since.

        Raises:
            DatasetEmpty: no clip is left.
            DatasetNotFound, DatasetBusy: see `Datasets`.
        """
        with dataset_lock(self._home.folder, name):
            job, encoder = self._table.job(name), self._table.encoder(name)
            rows = self._table.clips(name)
            clip_ids = [row.clip_id for row in rows if not row.verdict.is_left_out]
            if self._not_tokenized(clip_ids, encoder.identity):
                # Here: PyTorch takes seconds to load, and most methods do without.
                from backend.dataset.stages.clip_encoder import ClipEncoder  # noqa: PLC0415 - see above

                loaded = ClipEncoder.load(Path(encoder.folder), job.device)
                tokenize_clips(self._workspace, self._not_tokenized(clip_ids, loaded.identity), loaded)
                details = {row.key: row.details for row in rows}
                if loaded.identity != encoder.identity:
                    # Another version of Encore has another embedded model. Codes of two are not mixed.
                    details = {key: one.model_copy(update={"tensors_id": None}) for key, one in details.items()}
                    encoder = encoder.model_copy(
                        update={
                            "identity": loaded.identity,
                            "fingerprint": loaded.fingerprint,
                            "num_codebooks": loaded.num_codebooks,
                        }
                    )
                    self._table.save_encoder(name, encoder)
                rows = review_clips(job, self._table, details, self._workspace, encoder.identity)
            card = write_dataset(self._workspace, job, encoder, rows)
            self._table.mark_rows(name, are_current=True)
            return card

    def _not_tokenized(self, clip_ids: Sequence[str], encoder_identity: str) -> list[str]:
        """The clips that this encoder has made no codes of, each once."""
        return [
            clip_id
            for clip_id in dict.fromkeys(clip_ids)
            if lookup_tokenized(self._workspace, clip_id, encoder_identity) is None
        ]

    def retranscribe(
        self,
        name: str,
        keys: Sequence[str] | None = None,
        *,
        whisper: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[TranscriptChange]:
        """Transcribe some clips again, or all, and return those whose transcript differs from their text.

        Nothing is changed: accept a transcript with `edit_text`. `progress` gets the clips done and their total.

        Raises:
            EncoreError: there is no transcriber, or no such clip.
        """
        job = self._table.job(name)
        rows = self._clips(name)
        if keys is not None:
            rows = [self._clip(rows, name, key) for key in keys]
        chosen = select_transcriber(whisper or job.whisper, job.language)
        if chosen.source is None:
            raise EditInvalid(chosen.notice or "There is no transcriber: name a Whisper model.")
        transcriber = chosen.source.load(job.device)
        changes = []
        for index, row in enumerate(rows):
            whole = Span(start_seconds=0.0, end_seconds=row.seconds)
            piece = transcribe_piece(self._workspace, row.clip_id, whole, transcriber, language_code(job.language))
            heard = piece.transcript
            if text_errors(row.details.text, heard.text, language_code(job.language) or "en")[0] > 0:
                changes.append(
                    TranscriptChange(
                        key=row.key,
                        before=row.details.text,
                        after=heard.text,
                        confidence=heard.confidence,
                        transcriber=transcriber.name,
                    )
                )
            if progress is not None:
                progress(index + 1, len(rows))
        return changes

    def recording_audio(self, clip: ClipRow) -> Path:
        """The WAV of the recording that a clip is cut from; it may be gone."""
        return self._workspace.wav(clip.details.recording_audio_id)

    @property
    def _workspace(self) -> DatasetWorkspace:
        return DatasetWorkspace(self._home.folder)

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
        """Store what the user decided, and review what that can affect."""
        rows = self._clips(name)
        details = details or self._clip(rows, name, key).details
        self._table.save_edit(name, key, change(self._table.edits(name).get(key, ClipEdit())))
        encoder_identity = self._table.encoder(name).identity
        review_change(self._table.job(name), self._table, rows, (key, details), self._workspace, encoder_identity)


def _style(word: str) -> str:
    try:
        return clean_style(word)
    except ValueError as error:
        raise EditInvalid(str(error)) from error


def _with_style(row: ClipRow, style: str | None) -> ClipRow:
    details = row.details
    told = details.given_style if style is None else style
    return row if told == details.style else replace(row, details=details.model_copy(update={"style": told}))
