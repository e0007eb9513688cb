"""Reads an untrusted voice file: a zip of which nothing is believed before it is checked.

Members are stored, not compressed, so that a file cannot grow when it is opened; their names come from a fixed list,
so that none can escape the folder; and each has to have the size and the hash that the manifest says.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, StringConstraints, ValidationError

from backend.voices.errors import VoiceFileInvalid
from backend.voices.styles import STYLES_FOLDER
from backend.voices.variants import ADAPTER_FILES, is_checkpoint_file
from backend.voices.voice import ADAPTER_FOLDER, VARIANT_FOLDERS, VoiceRecord

MANIFEST_MEMBER, RECORD_MEMBER, REFERENCE_MEMBER = "manifest.json", "voice.json", "reference.wav"

# Two 1.7B checkpoints in bfloat16 with their speech tokenizers are 9 GB.
MAX_BYTES = 16 * 2**30
# Two checkpoints in shards, prompts of a dozen models, clips of fifty styles.
MAX_MEMBERS = 200
# The published vocabularies are below 4 MB.
MAX_JSON_BYTES = 64 * 2**20
MAX_RECORD_BYTES = 2**20
# Of rank 128 for the public 1.7B checkpoint, in float32.
MAX_ADAPTER_BYTES = 2**30
MAX_PROMPT_BYTES = 4 * 2**20
# Five minutes of 24 kHz PCM16 are 14.4 MB.
MAX_REFERENCE_BYTES = 16 * 2**20
# The table of contents of that many members is far smaller; the library reads it in one piece.
_MAX_READ_BYTES = 2**20

_STYLE_MEMBER = re.compile(rf"{STYLES_FOLDER}/[0-9a-f]{{16}}\.wav")
_PROMPT_MEMBER = re.compile(r"prompts/[0-9a-f]{32}\.safetensors")


class MemberDigest(BaseModel):
    """Size and hash of one member."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: NonNegativeInt
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Manifest(BaseModel):
    """What a voice file claims to hold; written last, from what was really written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["encore-voice"] = "encore-voice"
    version: Literal[1] = 1
    members: dict[str, MemberDigest] = Field(max_length=MAX_MEMBERS)


class VoiceArchive:
    """An open voice file whose table of contents was checked; members are checked as they are read."""

    def __init__(self, name: str, archive: zipfile.ZipFile, num_bytes: int) -> None:
        self._name = name
        self._archive = archive
        self._infos = self._check_members(num_bytes)
        self.manifest = self._read_manifest()

    @property
    def members(self) -> tuple[str, ...]:
        """Names of all members but the manifest."""
        return tuple(name for name in self._infos if name != MANIFEST_MEMBER)

    @property
    def num_bytes(self) -> int:
        """Of all members together."""
        return sum(info.file_size for info in self._infos.values())

    def read_record(self) -> VoiceRecord:
        """The file's description of the voice. Raises VoiceFileInvalid."""
        buffer = io.BytesIO()
        self._copy(RECORD_MEMBER, buffer)
        try:
            return VoiceRecord.model_validate(json.loads(buffer.getvalue()))
        except (ValueError, RecursionError) as error:
            raise self._refused(f"its {RECORD_MEMBER} is not valid") from error

    def extract(self, name: str, folder: Path, report: Callable[[int], None]) -> Path:
        """Write one member to `folder` under its own name, and report the bytes done.

        Raises:
            VoiceFileInvalid: it does not match the manifest.
        """
        destination = folder / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        with destination.open("xb") as file:
            self._copy(name, file, report)
        return destination

    def _check_members(self, num_bytes: int) -> dict[str, zipfile.ZipInfo]:
        infos = self._archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise self._refused(f"it has {len(infos)} members, more than {MAX_MEMBERS}")
        by_name = {info.filename: info for info in infos}
        if len(by_name) != len(infos):
            raise self._refused("two members have the same name")
        for name, info in by_name.items():
            if info.file_size > _size_limit(name):
                known = _size_limit(name) > 0
                problem = "is too large" if known else "does not belong in a voice file"
                raise self._refused(f"its member {_printable(name)} {problem}")
            if info.flag_bits & 1 or info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise self._refused(f"its member {_printable(name)} is compressed or encrypted")
        if missing := {MANIFEST_MEMBER, RECORD_MEMBER} - by_name.keys():
            raise self._refused(f"it has no {' and no '.join(sorted(missing))}")
        # Members that share bytes would be more than the file when they are written out.
        if sum(info.file_size for info in infos) > num_bytes:
            raise self._refused("its members overlap")
        return by_name

    def _read_manifest(self) -> Manifest:
        content = b"".join(self._chunks(MANIFEST_MEMBER))
        try:
            manifest = Manifest.model_validate(json.loads(content))
        except (ValidationError, ValueError, RecursionError) as error:
            raise self._refused("its manifest is not valid, or was written by a later version of Encore") from error
        if manifest.members.keys() != set(self.members):
            raise self._refused("its manifest does not list the members it has")
        return manifest

    def _copy(self, name: str, destination: BinaryIO, report: Callable[[int], None] | None = None) -> None:
        expected = self.manifest.members[name]
        digest = hashlib.sha256()
        num_bytes = 0
        for chunk in self._chunks(name):
            digest.update(chunk)
            destination.write(chunk)
            num_bytes += len(chunk)
            if report is not None:
                report(num_bytes)
        if num_bytes != expected.bytes or digest.hexdigest() != expected.sha256:
            raise self._refused(f"the checksum of {name} is wrong")

    def _chunks(self, name: str) -> Iterator[bytes]:
        """A member's content; never more than its checked size."""
        left = self._infos[name].file_size
        try:
            with self._archive.open(self._infos[name]) as member:
                while left and (chunk := member.read(min(left, _MAX_READ_BYTES // 2))):
                    left -= len(chunk)
                    yield chunk
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise self._refused(f"its member {name} cannot be read") from error

    def _refused(self, problem: str) -> VoiceFileInvalid:
        return refusal(self._name, problem)


@contextmanager
def open_voice_archive(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[VoiceArchive]:
    """Open a voice file and check its table of contents.

    Raises:
        VoiceFileInvalid: it is not a voice file, is too large, or holds something that does not belong in one.
    """
    try:
        with path.open("rb") as file:
            num_bytes = file.seek(0, io.SEEK_END)
            if num_bytes > max_bytes:
                raise refusal(path.name, f"it has {num_bytes / 1e9:.1f} GB, more than {max_bytes / 1e9:.1f}")
            with zipfile.ZipFile(_BoundedReads(file)) as archive:
                yield VoiceArchive(path.name, archive, num_bytes)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, _ReadTooLong) as error:
        raise refusal(path.name, "it is damaged or not a voice file") from error
    except OSError as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError):
            raise refusal(path.name, f"it cannot be opened ({error.strerror})") from error
        raise


def refusal(name: str, problem: str) -> VoiceFileInvalid:
    """The error for a voice file that is not imported."""
    return VoiceFileInvalid(f"{_printable(name)} is not imported: {problem}. Ask the sender for the file again.")


class _ReadTooLong(Exception):
    """More bytes were requested at once than any part of a voice file has."""


class _BoundedReads(io.RawIOBase):
    """A file of which only a little can be read at once: zipfile would load a table of contents of any size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Read like any file, but refuse to read more at once than a genuine table of contents has."""
        if not 0 <= size <= _MAX_READ_BYTES:
            position = self._file.tell()
            left = self._file.seek(0, io.SEEK_END) - position
            self._file.seek(position)
            if left > _MAX_READ_BYTES or size > _MAX_READ_BYTES:
                raise _ReadTooLong
        return self._file.read(size)


def _size_limit(name: str) -> int:
    """The maximum size in bytes of a member of that name; 0 if a voice file has no such member."""
    if name in (MANIFEST_MEMBER, RECORD_MEMBER):
        return MAX_RECORD_BYTES
    if name == REFERENCE_MEMBER or _STYLE_MEMBER.fullmatch(name):
        return MAX_REFERENCE_BYTES
    if _PROMPT_MEMBER.fullmatch(name):
        return MAX_PROMPT_BYTES
    variant, _, relative = name.partition("/")
    if variant == ADAPTER_FOLDER and relative in ADAPTER_FILES:
        return MAX_ADAPTER_BYTES if name.endswith(".safetensors") else MAX_RECORD_BYTES
    if variant in VARIANT_FOLDERS and is_checkpoint_file(relative):
        return MAX_BYTES if name.endswith(".safetensors") else MAX_JSON_BYTES
    return 0


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in name[:80])
