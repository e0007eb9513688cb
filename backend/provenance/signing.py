"""Signs files as they leave: the statement becomes a part of the file, the samples stay as they are.

A file that cannot be signed leaves all the same, with its comment tag; the reason is logged once and kept to be shown.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from backend.audio.formats import FORMAT_TABLE, AudioFormat
from backend.provenance.credentials import Credentials, open_credentials
from backend.provenance.errors import SigningError
from backend.provenance.manifest import ACTIONS, ASSERTION, CONFINED_SETTINGS, TRAINED_MODEL
from backend.provenance.statement import GENERATOR, SpeechStatement

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SigningState:
    """Of a signer.

    Attributes:
        signer: the name in its certificate; None where nothing is signed.
        certificates: by which others can tell what it signed, as PEM.
        problem: why the last file was not signed; empty when all is well.
    """

    signer: str | None
    certificates: str | None
    problem: str


class FileSigner:
    """Signs with one installation's credentials; may be used from any thread.

    Attributes:
        problem: why the last file was not signed, for the person who runs this; empty when all is well.
    """

    def __init__(self, home: Path, certificate: Path | None = None, key: Path | None = None) -> None:
        """Open or make the credentials; without usable ones nothing is signed, and `problem` says why."""
        self.problem = ""
        self.credentials: Credentials | None = None
        self._lock = threading.Lock()
        try:
            _load_c2pa()
            self.credentials = open_credentials(home, certificate, key)
        except SigningError as error:
            self._note(str(error))

    def sign(self, content: bytes, audio_format: AudioFormat, statement: SpeechStatement | None) -> bytes:
        """A whole file with its statement signed into it; as it came where that cannot be done."""
        signed = io.BytesIO()
        return signed.getvalue() if self._try(io.BytesIO(content), signed, audio_format, statement) else content

    def state(self) -> SigningState:
        """Who signs, and what stands in the way."""
        own = self.credentials
        return SigningState(
            signer=None if own is None else own.signer,
            certificates=None if own is None else own.certificates.decode(),
            problem=self.problem,
        )

    def sign_file(self, path: Path, audio_format: AudioFormat, statement: SpeechStatement | None) -> bool:
        """The same for a finished file, in place; returns whether it is signed now."""
        partial = path.with_name(f".{uuid.uuid4().hex}.partial")
        try:
            with path.open("rb") as source, partial.open("xb+") as signed:
                is_signed = self._try(source, signed, audio_format, statement)
            if is_signed:
                os.replace(partial, path)
        except OSError as error:
            self._note(f"{path.name} was not signed: {error.strerror or error}.")
            return False
        finally:
            partial.unlink(missing_ok=True)
        return is_signed

    def _try(
        self, source: BinaryIO, signed: BinaryIO, audio_format: AudioFormat, statement: SpeechStatement | None
    ) -> bool:
        media_type = FORMAT_TABLE[audio_format].signed_as
        if self.credentials is None or statement is None or not media_type:
            return False
        try:
            _write_signed(self.credentials, source, signed, media_type, statement)
        except SigningError as error:
            self._note(str(error))
            return False
        self.problem = ""
        return True

    def _note(self, problem: str) -> None:
        with self._lock:
            if problem != self.problem:
                _logger.warning("files leave without a signature: %s", problem)
            self.problem = problem


def _load_c2pa() -> ModuleType:
    """The library, which is a native one: where it does not load, takes are made all the same. Raises SigningError."""
    try:
        return importlib.import_module("c2pa")
    except (ImportError, OSError, RuntimeError) as error:
        raise SigningError(f"c2pa cannot be loaded ({error}). Install what requirements.txt names.") from error


def _write_signed(
    credentials: Credentials, source: BinaryIO, signed: BinaryIO, media_type: str, statement: SpeechStatement
) -> None:
    """Copy a file with its statement. Raises SigningError."""
    c2pa = _load_c2pa()
    try:
        settings = {"verify": CONFINED_SETTINGS}
        information = c2pa.C2paSignerInfo(
            alg=credentials.algorithm.encode(),
            sign_cert=credentials.certificates,
            private_key=credentials.key,
            # No time stamp: asking for one would tell a server of each take.
            ta_url=None,
        )
        with (
            c2pa.Context.from_dict(settings) as context,
            c2pa.Signer.from_info(information) as signer,
            c2pa.Builder(_manifest(statement), context=context) as builder,
        ):
            builder.sign(signer, media_type, source, signed)
    except c2pa.C2paError as error:
        raise SigningError(f"The signature was refused: {error}. Look at the certificate's dates and uses.") from error


def _manifest(statement: SpeechStatement) -> dict[str, Any]:  # Any: JSON
    generator = {"name": GENERATOR, "version": statement.version}
    created = {
        "action": "c2pa.created",
        "when": statement.made_at.isoformat(),
        "digitalSourceType": TRAINED_MODEL,
        "softwareAgent": generator,
    }
    return {
        "claim_generator_info": [generator],
        "title": "Synthetic speech",
        "assertions": [
            {"label": ACTIONS, "created": True, "data": {"actions": [created]}},
            {"label": ASSERTION, "created": True, "data": statement.model_dump(mode="json", exclude_none=True)},
        ],
    }
