"""The registry of voices: rows in the store, one folder of files each."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue, ValidationError

from backend.store.home import Home
from backend.store.rows import understanding, understood
from backend.store.trash import Deleted, Trash
from backend.voices.consent import Consent, fingerprint_of_files, require_consent
from backend.voices.errors import VoiceError, VoiceLimitReached, VoiceNameTaken, VoiceNotFound
from backend.voices.names import clean_name, name_key
from backend.voices.styles import STYLES_FOLDER, StyleClip, VoiceStyle
from backend.voices.voice import REFERENCE_FILE, Variant, Voice, VoiceRecord
from training.model.checkpoint.atomic_folder import create_folder
from training.model.checkpoint.hashes import write_hashes
from training.model.sampling_settings import Sampling

if TYPE_CHECKING:
    from backend.voices.voice_file import Report

# Finding a voice loads no networks. Those who make one, export or import one import what they need themselves.
VOICES_FOLDER = "voices"
_logger = logging.getLogger(__name__)
# A folder gets its name when it is filled, and its row at once; one without was left by a process that died between.
_ABANDONED_AFTER_SECONDS = 600.0
_CONSENT_COLUMNS = ("who", "given_at", "statement", "wording", "given_for")


class Voices:
    """Makes, finds and deletes the voices of the home's tenant; any number of threads and processes may use it."""

    def __init__(self, home: Home, max_voices: int | None = None) -> None:
        """Open the registry; the tenant may have `max_voices`, None for any number."""
        self._home, self._database, self.trash = home, home.database, Trash(home)
        self.folder = home.folder / VOICES_FOLDER
        self._max_voices = max_voices

    def of_tenant(self, tenant: str, max_voices: int | None = None) -> Voices:
        """The same registry as another tenant sees it; costs nothing."""
        return Voices(self._home.of_tenant(tenant), max_voices)

    def create_zero_shot(
        self,
        name: str,
        recordings: Path | Sequence[Path],
        *,
        consent: Consent | None,
        model: str,
        transcript: str | None = None,
        language: str = "auto",
        sampling: Sampling | None = None,
        provenance: Mapping[str, JsonValue] | None = None,
        accept_synthetic: bool = False,
        is_derived: bool = False,
    ) -> Voice:
        """Make a voice of one or more recordings; with their transcript it is cloned in context.

        With `accept_synthetic` also of recordings that Encore made. The consent is tied to the recordings, unless they
        are themselves derived from what it was given for.

        Raises:
            ConsentMissing: there is no consent.
            VoiceNameInvalid, VoiceNameTaken: the name cannot be used.
            VoiceLimitReached: the tenant has as many voices as allowed.
            RecordingSynthetic: Encore made a recording, and that is not accepted.
            RecordingError: no voice can be cloned from a recording.
        """
        paths = [recordings] if isinstance(recordings, Path) else list(recordings)
        record = self._new_record(
            name,
            kind="zero-shot",
            consent=consent,
            model=model,
            transcript=(transcript or "").strip() or None,
            language=language,
            sampling=sampling,
            provenance={"recordings": [path.name[:200] for path in paths], **(provenance or {})},
        )
        if not is_derived:
            record = _bound(record, paths)
        from backend.provenance.check import Checker  # noqa: PLC0415 - see `VOICES_FOLDER`
        from backend.voices.reference import write_reference  # noqa: PLC0415

        refuse = None if accept_synthetic else Checker().refuse_synthetic
        return self.add(record, lambda folder: write_reference(folder / REFERENCE_FILE, paths, refuse))

    def add_fine_tuned(
        self,
        name: str,
        checkpoints: Mapping[Variant, Path],
        *,
        consent: Consent | None,
        model: str,
        run_id: str | None = None,
        reference: Path | None = None,
        transcript: str | None = None,
        language: str = "auto",
        sampling: Sampling | None = None,
        speaker: str | None = None,
        provenance: Mapping[str, JsonValue] | None = None,
        styles: Sequence[StyleClip] = (),
        adapter: Path | None = None,
    ) -> Voice:
        """Make a voice from what a fine-tune exported, which is linked or copied, so that the run may be deleted.

        Args:
            name: what it is called.
            checkpoints: folders in the public format under `custom_voice`, `base`, or both; none with an adapter.
            consent: of the speaker it was trained on.
            model: the base model it was trained from.
            run_id: the fine-tune.
            reference: a clip of the speaker; needed where only `base` is given.
            transcript: what that clip says.
            language: of the voice.
            sampling: default of its takes.
            speaker: the voice's name in the checkpoint, where that has several.
            provenance: digest of the dataset, scores, whatever tells where it comes from.
            styles: how it can be told to speak; those with a clip need the `base` checkpoint or an adapter.
            adapter: the folder of an adapter, which the base model speaks with, instead of checkpoints.

        Raises:
            ConsentMissing: there is no consent.
            VoiceNameInvalid, VoiceNameTaken: the name cannot be used.
            EncoreError: a checkpoint or adapter is missing or of another kind, or the reference cannot be used.
        """
        from backend.voices.reference import write_reference  # noqa: PLC0415 - see `VOICES_FOLDER`
        from backend.voices.variants import copy_adapter, copy_variants  # noqa: PLC0415

        _require_speech(checkpoints, adapter, reference, styles)
        record = self._new_record(
            name,
            kind="fine-tuned",
            consent=consent,
            model=model,
            run_id=run_id,
            transcript=(transcript or "").strip() or None if reference is not None else None,
            language=language,
            sampling=sampling,
            provenance=dict(provenance or {}),
            styles=tuple(VoiceStyle(name=style.name, transcript=style.text) for style in styles),
        )

        def fill(folder: Path) -> None:
            """Copy the voice's files to their final place."""
            copy_variants(checkpoints, folder, speaker)
            if adapter is not None:
                copy_adapter(adapter, folder, speaker)
            if reference is not None:
                write_reference(folder / REFERENCE_FILE, [reference])
            _write_style_clips(folder / STYLES_FOLDER, record, styles)

        return self.add(record, fill)

    def get(self, name: str) -> Voice:
        """Find a voice by its name, in any case, or its id. Raises VoiceNotFound."""
        with self._database.reading() as connection:
            voice = self._read(connection, name)
        if voice is None:
            raise VoiceNotFound(f"There is no voice {name[:100]!r}. `app.py voices list` shows all voices.")
        return voice

    def list(self) -> tuple[Voice, ...]:
        """All voices, the oldest first."""
        wanted = "SELECT id FROM voices WHERE tenant = ? ORDER BY created_at, id"
        with self._database.reading() as connection:
            ids = [row["id"] for row in connection.execute(wanted, (self._home.tenant,))]
            found = understood(ids, lambda voice_id: self._read(connection, voice_id))
        return tuple(voice for voice in found if voice is not None)

    def free_name(self, name: str) -> str:
        """The name, with a number behind it if another voice has it."""
        taken = {name_key(voice.name) for voice in self.list()}
        names = (name, *(f"{name} {number}" for number in range(2, len(taken) + 3)))
        return next(one for one in names if name_key(one) not in taken)

    def rename(self, name: str, new_name: str) -> Voice:
        """Rename a voice. Raises VoiceNotFound, VoiceNameInvalid, VoiceNameTaken."""
        return self._change(name, lambda voice: voice.model_copy(update={"name": clean_name(new_name)}))

    def delete(self, name: str) -> Deleted:
        """Put a voice with its consent and its files into the trash. Raises VoiceNotFound."""
        voice = self.get(name)
        deleted = self.trash.put("voice", voice.id, voice.name, makes_room=voice.folder)
        if deleted is None:
            raise VoiceNotFound(f"There is no voice {name[:100]!r} any more. `app.py voices list` shows all voices.")
        return deleted

    def restore(self, deleted: Deleted) -> Voice:
        """Undo a deletion.

        Raises:
            TrashNotFound, TrashNameTaken: see `Trash.restore`.
            VoiceLimitReached: the tenant has as many voices as allowed by now.
        """
        return self.get(self.trash.restore(deleted.id, self._require_room).item_id)

    def export(self, name: str, destination: Path, *, report: Report | None = None) -> Path:
        """Write a voice and its consent to one file, or into a folder; returns the file.

        Raises:
            VoiceNotFound: no voice has that name.
            VoiceError: the file cannot be written.
        """
        voice = self.get(name)
        from backend.voices.voice_file import export_voice  # noqa: PLC0415 - see `VOICES_FOLDER`

        return export_voice(voice, destination, report=report)

    def import_(
        self, path: Path, name: str | None = None, *, report: Report | None = None, renames: bool = False
    ) -> Voice:
        """Import a voice file; `name` replaces the name in the file, and with `renames` a free name one that is taken.

        Raises:
            VoiceFileInvalid: the file is damaged, or holds something that does not belong in a voice file.
            VoiceNameTaken: another voice has that name.
            EncoreError: its recording or its checkpoint cannot be used.
        """

        def add(record: VoiceRecord, fill: Callable[[Path], object]) -> Voice:
            """As `add`, under a name that is free."""
            return self.add(record.model_copy(update={"name": self.free_name(record.name)}), fill)

        from backend.voices.voice_file import import_voice  # noqa: PLC0415 - see `VOICES_FOLDER`

        adding = add if renames else self.add
        return import_voice(path, add=adding, name=name, report=report)

    def add(self, record: VoiceRecord, fill: Callable[[Path], object]) -> Voice:
        """Store a voice, whose files `fill` writes into a folder: both are stored, or neither.

        Raises:
            VoiceNameTaken: another voice has taken the name in the meantime.
            VoiceLimitReached: the tenant has as many voices as allowed.
            VoiceError: the disk is full or not writable.
        """
        require_consent(record.consent)
        self.sweep()
        self._require_free(record.name)
        folder = self.folder / record.id
        try:
            with create_folder(folder) as new:
                fill(new)
                write_hashes(new)
            try:
                with self._database.transaction() as connection:
                    self._require_room(connection)
                    _write_row(connection, record, self._home.tenant)
            except BaseException:  # whatever it is: a folder that no row points to would stay
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            raise VoiceError(
                f"The voice {record.name} cannot be stored: {error.strerror or error}. Free some space, or set "
                "ENCORE_HOME to another folder."
            ) from error
        except sqlite3.IntegrityError as error:
            raise _name_taken(record.name) from error
        return Voice(**dict(record), folder=folder)

    def _new_record(self, name: str, *, consent: Consent | None, **fields: object) -> VoiceRecord:
        """Check what can be checked before any file is read."""
        agreed = require_consent(consent)
        cleaned = clean_name(name)
        self._require_free(cleaned)
        try:
            return VoiceRecord.model_validate(
                {"id": uuid.uuid4().hex, "name": cleaned, "consent": agreed, "created_at": datetime.now(UTC), **fields}
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise VoiceError(
                f"The voice's {first['loc'][0]} cannot be {str(first['input'])[:80]!r}: {first['msg']}. Correct it."
            ) from error

    def _change(self, name: str, change: Callable[[Voice], Voice]) -> Voice:
        with self._database.transaction() as connection:
            voice = self._read(connection, name)
            if voice is None:
                raise VoiceNotFound(f"There is no voice {name[:100]!r}. `app.py voices list` shows all voices.")
            changed = change(voice)
            try:
                _write_row(connection, changed.record, self._home.tenant)
            except sqlite3.IntegrityError as error:
                raise _name_taken(changed.name) from error
        return changed

    def _require_free(self, name: str) -> None:
        named = "SELECT 1 FROM voices WHERE tenant = ? AND name_key = ?"
        with self._database.reading() as connection:
            if connection.execute(named, (self._home.tenant, name_key(name))).fetchone():
                raise _name_taken(name)
            # Again when it is stored: here so that no recording is read for nothing.
            self._require_room(connection)

    def _require_room(self, connection: sqlite3.Connection) -> None:
        if self._max_voices is None:
            return
        counted = connection.execute("SELECT count(*) FROM voices WHERE tenant = ?", (self._home.tenant,))
        if (num_voices := counted.fetchone()[0]) >= self._max_voices:
            raise VoiceLimitReached(
                f"You have {num_voices} voices, and the limit is {self._max_voices}. Delete one first, or ask the "
                "operator for more."
            )

    def _read(self, connection: sqlite3.Connection, name_or_id: str) -> Voice | None:
        return _read_voice(connection, self.folder, self._home.tenant, name_or_id)

    def sweep(self) -> None:
        """Remove folders that belong to no voice, once they are too old to be still in the making."""
        if not self.folder.is_dir():
            return
        with self._database.reading() as connection:
            known = {row["id"] for row in connection.execute("SELECT id FROM voices")} | self.trash.item_ids("voice")
        for folder in self.folder.iterdir():
            try:
                is_old = time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_SECONDS
            except FileNotFoundError:
                continue
            if is_old and folder.name not in known:
                _logger.warning("removing %s, which belongs to no voice", folder)
                shutil.rmtree(folder, ignore_errors=True)


def _require_speech(
    checkpoints: Mapping[Variant, Path], adapter: Path | None, reference: Path | None, styles: Sequence[StyleClip]
) -> None:
    """Refuse a voice that could not speak, or not in all of its styles. Raises VoiceError."""
    is_heard = "custom_voice" in checkpoints or (bool(checkpoints) and reference is not None)
    if not is_heard and (adapter is None or checkpoints):
        raise VoiceError(
            "A fine-tuned voice needs a custom_voice checkpoint, or a base checkpoint and a reference clip. "
            "Export the run again."
        )
    if any(style.clip for style in styles) and "base" not in checkpoints and adapter is None:
        raise VoiceError("Styles continue clips with a base checkpoint, and there is none. Export the run again.")


def _write_style_clips(folder: Path, record: VoiceRecord, styles: Sequence[StyleClip]) -> None:
    """The clips that a voice continues to speak in its styles."""
    from backend.voices.reference import write_reference  # noqa: PLC0415 - see `VOICES_FOLDER`

    for stored, given in zip(record.styles, styles, strict=True):
        if given.clip is not None:
            folder.mkdir(exist_ok=True)
            write_reference(folder / stored.file_name, [given.clip])


def _bound(record: VoiceRecord, paths: Sequence[Path]) -> VoiceRecord:
    """The record with its consent tied to these recordings. Raises ConsentInvalid if it was given for others."""
    consent = record.consent
    if consent.given_for is None and all(path.is_file() for path in paths):
        consent = consent.bound_to(fingerprint_of_files(paths))
    return record.model_copy(update={"consent": consent})


def _name_taken(name: str) -> VoiceNameTaken:
    return VoiceNameTaken(f"There is a voice {name!r} already. Choose another name, or delete that voice first.")


def _write_row(connection: sqlite3.Connection, record: VoiceRecord, tenant: str) -> None:
    """Store a tenant's voice and its consent, or replace what was stored.

    Raises:
        sqlite3.IntegrityError: another voice has its name.
    """
    without_consent = record.model_dump_json(exclude={"consent"})
    created_at = record.created_at.isoformat()
    connection.execute(
        "INSERT INTO voices (id, tenant, name, name_key, record, created_at) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET name = excluded.name, name_key = excluded.name_key, record = excluded.record",
        (record.id, tenant, record.name, name_key(record.name), without_consent, created_at),
    )
    consent = record.consent
    connection.execute(
        "INSERT OR REPLACE INTO consents (voice_id, who, given_at, statement, wording, spoken, given_for, also)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.id,
            consent.who,
            consent.given_at.isoformat(),
            consent.statement,
            consent.wording,
            consent.spoken.model_dump_json() if consent.spoken else None,
            consent.given_for,
            json.dumps([one.model_dump(mode="json") for one in consent.also]),
        ),
    )


def _read_voice(connection: sqlite3.Connection, folder: Path, tenant: str, name_or_id: str) -> Voice | None:
    """Find a tenant's voice by name (in any case) or id; `folder` holds the folders of all voices."""
    row = connection.execute(
        "SELECT voices.record, consents.* FROM voices JOIN consents ON consents.voice_id = voices.id"
        " WHERE voices.tenant = ? AND (voices.name_key = ? OR voices.id = ?)"
        " ORDER BY voices.name_key = ? DESC LIMIT 1",
        (tenant, name_key(name_or_id), name_or_id, name_key(name_or_id)),
    ).fetchone()
    if row is None:
        return None
    with understanding(f"the voice {row['voice_id']}"):
        more = {"spoken": json.loads(row["spoken"]) if row["spoken"] else None, "also": json.loads(row["also"])}
        consent = Consent.model_validate({name: row[name] for name in _CONSENT_COLUMNS} | more)
        fields = json.loads(row["record"])
        return Voice.model_validate({**fields, "consent": consent, "folder": folder / row["voice_id"]})
