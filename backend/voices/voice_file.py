"""A voice as one file to share: a zip of safetensors, JSON and the reference WAV, with checksums."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from backend.voices.adapter_check import check_imported_adapter
from backend.voices.checkpoint_check import check_checkpoint
from backend.voices.consent import require_consent
from backend.voices.errors import VoiceError, VoiceFileInvalid
from backend.voices.prompt_file import check_prompt_file
from backend.voices.reference import write_reference
from backend.voices.styles import STYLES_FOLDER
from backend.voices.trial import require_speech
from backend.voices.voice import ADAPTER_FOLDER, PROMPTS_FOLDER, REFERENCE_FILE, VARIANT_FOLDERS, Voice, VoiceRecord
from backend.voices.voice_archive import (
    MANIFEST_MEMBER,
    MAX_BYTES,
    RECORD_MEMBER,
    Manifest,
    MemberDigest,
    VoiceArchive,
    open_voice_archive,
    refusal,
)
from training.model.errors import ModelError
from training.model.hub.download import find_installed
from training.model.hub.hub import short_name

SUFFIX = ".encore-voice"

_CHUNK_BYTES = 2**20
# A file's time would make two exports of the same voice differ.
_MEMBER_TIME = (2020, 1, 1, 0, 0, 0)
# Left for everything else on the disk.
_SPARE_BYTES = 256 * 2**20


Report = Callable[[int, int], None]
"""Called with bytes done and bytes in total; an error it raises cancels the work, and nothing is left behind."""


def export_voice(voice: Voice, destination: Path, *, report: Report | None = None) -> Path:
    """Write a voice, with its consent, to one file; in a folder it is named after the voice. Returns the file.

    Raises:
        VoiceError: it cannot be written.
    """
    path = destination / f"{voice.name.replace(' ', '-')}{SUFFIX}" if destination.is_dir() else destination
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                _write_members(archive, voice, report or _tell_nobody)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise VoiceError(
            f"The voice {voice.name} cannot be written to {path}: {error.strerror}. Choose another place."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def import_voice(
    path: Path,
    *,
    add: Callable[[VoiceRecord, Callable[[Path], object]], Voice],
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
    report: Report | None = None,
) -> Voice:
    """Import a voice file.

    Args:
        path: the file.
        add: stores a voice whose files the given function writes.
        name: what to call it here; its own name by default.
        max_bytes: larger files are not opened.
        report: called with the progress.

    Raises:
        VoiceFileInvalid: it is damaged, or holds something that does not belong in a voice file.
        VoiceNameTaken: there is a voice of that name; give another.
        EncoreError: its recording or its checkpoint cannot be used.
    """
    with open_voice_archive(path, max_bytes) as archive:
        stranger = archive.read_record()
        require_consent(stranger.consent)
        imported: dict[str, JsonValue] = {
            "file": path.name[:200],
            "id": stranger.id,
            "run_id": stranger.run_id,
            "created_at": stranger.created_at.isoformat(),
        }
        try:
            record = VoiceRecord.model_validate(
                {
                    **dict(stranger),
                    # An id of its own: the same voice may be imported twice, and no file decides which folder it gets.
                    "id": uuid.uuid4().hex,
                    "name": name or stranger.name,
                    "run_id": None,
                    "created_at": datetime.now(UTC),
                    "provenance": {"imported": imported, "original": stranger.provenance},
                }
            )
            # Nested too deeply, or with halves of characters: it could neither be stored nor given away again.
            record.model_dump_json()
        except ValueError as error:
            raise refusal(path.name, f"its {RECORD_MEMBER} is not valid") from error
        return add(record, lambda folder: _unpack(archive, record, folder, path.name, report or _tell_nobody))


def _tell_nobody(num_done: int, num_total: int) -> None:
    """Reports to nobody."""


def _counted_on(report: Report, num_before: int, num_total: int) -> Callable[[int], None]:
    """Reports the progress of one file among several."""
    return lambda num_done: report(num_before + num_done, num_total)


def _write_members(archive: zipfile.ZipFile, voice: Voice, report: Report) -> None:
    # Where the base model lies on this computer is not for whoever gets the file.
    record = voice.record.model_copy(update={"model": short_name(voice.record.model)})
    members = {RECORD_MEMBER: _write_bytes(archive, RECORD_MEMBER, record.model_dump_json(indent=1).encode())}
    files = _files_of(voice)
    num_done, num_total = 0, sum(path.stat().st_size for path in files)
    for path in files:
        name = path.relative_to(voice.folder).as_posix()
        members[name] = _write_file(archive, name, path, _counted_on(report, num_done, num_total))
        num_done += members[name].bytes
    _write_bytes(archive, MANIFEST_MEMBER, Manifest(members=members).model_dump_json(indent=1).encode())


def _files_of(voice: Voice) -> list[Path]:
    files = [voice.reference] if voice.reference else []
    files += [voice.clip_of(style) for style in voice.styles if voice.clip_of(style).is_file()]
    for folder in (voice.prompts_folder, *voice.variants.values(), *([voice.adapter] if voice.adapter else [])):
        files += [
            path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")
        ]  # fmt: skip
    return files


def _write_file(archive: zipfile.ZipFile, name: str, path: Path, report: Callable[[int], None]) -> MemberDigest:
    digest = hashlib.sha256()
    num_bytes = 0
    with path.open("rb") as source, archive.open(zipfile.ZipInfo(name, _MEMBER_TIME), "w", force_zip64=True) as member:
        while chunk := source.read(_CHUNK_BYTES):
            member.write(chunk)
            digest.update(chunk)
            num_bytes += len(chunk)
            report(num_bytes)
    return MemberDigest(bytes=num_bytes, sha256=digest.hexdigest())


def _write_bytes(archive: zipfile.ZipFile, name: str, content: bytes) -> MemberDigest:
    archive.writestr(zipfile.ZipInfo(name, _MEMBER_TIME), content)
    return MemberDigest(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _unpack(archive: VoiceArchive, record: VoiceRecord, folder: Path, file_name: str, report: Report) -> None:
    """Write the members to the voice's folder, and check each before the voice exists."""
    _require_room(folder, archive)
    num_done = 0
    for name in archive.members:
        if name != RECORD_MEMBER:
            archive.extract(name, folder, _counted_on(report, num_done, archive.num_bytes))
            num_done += archive.manifest.members[name].bytes
    variants = [variant for variant in VARIANT_FOLDERS if (folder / variant).is_dir()]
    clips = _clips_of_styles(record, folder, file_name)
    try:
        for prompt in sorted((folder / PROMPTS_FOLDER).glob("*")):
            check_prompt_file(prompt)
        base = find_installed(record.model)
        for variant in variants:
            check_checkpoint(folder / variant, variant, base)
            require_speech(folder / variant, record.language)
        if has_adapter := (folder / ADAPTER_FOLDER).is_dir():
            check_imported_adapter(folder / ADAPTER_FOLDER, base, record.language)
    except ModelError as error:
        # Whoever sent the file may read this, and where it lies on this computer is not for them.
        raise VoiceFileInvalid(str(error).replace(f"{folder}/", "")) from error
    reference = folder / REFERENCE_FILE
    for recording in (reference, *clips):
        if recording.is_file():
            _write_anew(recording)
    if record.kind == "zero-shot" and (variants or has_adapter or not reference.is_file()):
        raise refusal(file_name, "it claims to be zero-shot but does not consist of a reference recording")
    speaks = has_adapter or "custom_voice" in variants or (variants and reference.is_file())
    if record.kind == "fine-tuned" and not speaks:
        raise refusal(file_name, "it claims to be fine-tuned but has no checkpoint to speak with")


def _clips_of_styles(record: VoiceRecord, folder: Path, file_name: str) -> list[Path]:
    """The clips of a voice's styles; refuses clips without a style, and styles without a clip."""
    clips = {style.file_name for style in record.styles if style.transcript is not None}
    if clips != {path.name for path in (folder / STYLES_FOLDER).glob("*")}:
        raise refusal(file_name, "its clips are not those of its styles")
    if clips and record.kind == "fine-tuned" and not any((folder / one).is_dir() for one in ("base", ADAPTER_FOLDER)):
        raise refusal(file_name, "it has styles but no checkpoint to speak them with")
    return [folder / STYLES_FOLDER / name for name in sorted(clips)]


def _write_anew(path: Path) -> None:
    """Decode a stranger's recording and write it as one of our own."""
    received = path.rename(path.with_name(f"received-{path.name}"))
    write_reference(path, [received])
    received.unlink()


def _require_room(folder: Path, archive: VoiceArchive) -> None:
    free = shutil.disk_usage(folder).free
    if archive.num_bytes + _SPARE_BYTES > free:
        raise VoiceError(
            f"The voice needs {archive.num_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free. Free some space."
        )
