"""The index of the voices that one home has put into the object storage, for API servers with homes of their own.

voices/index.json    which voices there are, with consents; a few kilobytes, asked for every few seconds
voices/ID/           a stored folder each, see `training.storage.folders`
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from backend.voices.voice import VoiceRecord
from training.errors import StorageDamaged

STORED_VOICES_FOLDER = "voices"
INDEX_NAME = f"{STORED_VOICES_FOLDER}/index.json"
_OWNER_FILE = "storage_owner"


class VoiceIndex(BaseModel):
    """Who puts voices there, and which."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    owner: str
    """The home; others only read."""
    voices: tuple[VoiceRecord, ...]

    @classmethod
    def parse(cls, content: bytes) -> VoiceIndex:
        """Read an index. Raises StorageDamaged."""
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise StorageDamaged(
                f"{INDEX_NAME} in the storage is damaged, or of a later version. Delete it there; the studio writes it "
                "again."
            ) from error


def stored_voice(voice_id: str) -> str:
    """The folder of a voice in the storage."""
    return f"{STORED_VOICES_FOLDER}/{voice_id}"


def owner_of(home: Path) -> str:
    """By what a home is told from others; made when it is first asked for. Raises OSError."""
    path = home / _OWNER_FILE
    if not path.exists():
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        partial.write_text(secrets.token_hex(16), encoding="ascii")
        try:
            # Of two processes that start at once, one names the home.
            with suppress(FileExistsError):
                path.hardlink_to(partial)
        finally:
            partial.unlink()
    return path.read_text(encoding="ascii")
