"""What a foreign file's signed statement says, and whether it can be relied on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backend.audio.confined_process import open_foreign_file, run_confined
from backend.audio.containers import Container, sniff_container
from backend.audio.limits import DecodingLimits
from backend.errors import DecoderFailed
from backend.provenance.credentials import KnownSigners
from backend.provenance.manifest import TRAINED_MODEL
from backend.provenance.statement import SpeechStatement
from training.model.owner import temporary_folder

_READER = "backend.provenance.reader_process"
_MEDIA_TYPES: dict[Container, str] = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "mp4": "audio/mp4",
}
_BLOCK_BYTES = 1 << 20
_MARKER = b"c2pa"
"""In every file that carries a signed statement; where it is missing, no process has to be started."""

Trust = Literal["ours", "unknown-signer", "changed", "broken"]


class SignedStatement(BaseModel):
    """A signed statement found in a file.

    Attributes:
        trust: signed by this installation and unchanged; unchanged, but by a signer that is not known here; changed
            since it was signed; or its signature does not hold.
        signer: as its certificate calls it, which anyone can choose unless `trust` is ours.
        generator: the program that made the file.
        is_synthetic: whether it says that a trained model made the sound.
        statement: what Encore says of the take; None where another program signed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trust: Trust
    signer: str
    generator: str
    is_synthetic: bool
    statement: SpeechStatement | None


class _Found(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Literal["none", "unreadable", "invalid", "valid", "trusted"]
    codes: tuple[str, ...] = Field(default=(), max_length=1000)
    signer: str = Field(default="", max_length=1000)
    serial_number: str = Field(default="", max_length=100)
    generator: str = Field(default="", max_length=1000)
    source_type: str = Field(default="", max_length=1000)
    statement: Any = None  # checked on its own: a damaged one is no reason to hide the signature


def read_statement(
    path: Path, *, signers: KnownSigners, limits: DecodingLimits, name: str | None = None
) -> SignedStatement | None:
    """The signed statement in an untrusted file, read in a process of its own; None where there is none.

    Args:
        path: the file.
        signers: those of this installation.
        limits: of size and effort.
        name: what the file is called in errors.

    Raises:
        RecordingError: the file cannot be opened, or its statement cannot be read.
    """
    name = name or path.name
    with open_foreign_file(path, name, limits) as descriptor:
        with open(descriptor, "rb", closefd=False) as file:
            kind = sniff_container(file)
            if kind not in _MEDIA_TYPES or not _has_marker(file):
                return None
            file.seek(0)
        job = {"media_type": _MEDIA_TYPES[kind], "anchors": signers.anchors, "limits": dataclasses.asdict(limits)}
        with temporary_folder() as folder, open(f"{folder}/none", "wb") as output:
            exit_code, answer = run_confined(_READER, json.dumps(job), limits, descriptor, output, name)
    try:
        found = _Found.model_validate_json(answer.strip().rpartition(b"\n")[2])
    except ValidationError as error:
        cause = f"the reader of its signed statement ended with {exit_code}"
        raise DecoderFailed(name, cause=cause) from error
    return None if found.state == "none" else _judge(found, signers)


def _has_marker(file: BinaryIO) -> bool:
    """Whether the marker is anywhere in a file."""
    end = b""
    while block := file.read(_BLOCK_BYTES):
        if _MARKER in end + block:
            return True
        end = block[-len(_MARKER) :]
    return False


def _judge(found: _Found, signers: KnownSigners) -> SignedStatement:
    trust: Trust = "broken"
    if found.state in ("trusted", "valid"):
        is_ours = found.state == "trusted" and found.serial_number in signers.serial_numbers
        trust = "ours" if is_ours else "unknown-signer"
    elif any(code.endswith("Hash.mismatch") for code in found.codes):
        trust = "changed"
    try:
        statement = SpeechStatement.model_validate(found.statement)
    except ValidationError:
        statement = None
    return SignedStatement(
        trust=trust,
        signer=found.signer,
        generator=found.generator,
        is_synthetic=found.source_type == TRAINED_MODEL,
        statement=statement,
    )
