"""What a home says about the mark: the installation's own key, and whether its operator has switched the mark off."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, SecretBytes, StringConstraints, ValidationError

from backend.errors import SettingsError
from backend.store.errors import StoreError
from backend.store.home import Home
from backend.watermark.mark import Mark

KEY_FILE = "watermark.key"
KEY_BYTES = 32
SETTINGS_FILE = "settings.json"

_logger = logging.getLogger(__name__)


class HomeSettings(BaseModel):
    """The file `settings.json` in the home: what only an operator decides, and nowhere else can be set.

    Attributes:
        watermark_off: the reason why what is spoken here is not marked; logged at each start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    watermark_off: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)] | None = None


def mark_of(home: Home) -> Mark:
    """How to mark what is spoken for a home.

    Raises:
        SettingsError: its settings file cannot be understood.
        StoreError: its key cannot be made or read.
    """
    reason = read_settings(home.folder).watermark_off
    if reason is not None:
        _logger.warning("speech is made without a watermark, says %s: %s", home.folder / SETTINGS_FILE, reason)
        return Mark(off_because=reason)
    return Mark(installation_key=SecretBytes(installation_key(home)))


def read_settings(folder: Path) -> HomeSettings:
    """The settings file of a home folder; the defaults where there is none. Raises SettingsError."""
    path = folder / SETTINGS_FILE
    try:
        return HomeSettings.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return HomeSettings()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}. Make it readable or remove it.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{first['loc'][0]}: " if first["loc"] else ""
        raise SettingsError(f"{path} is not understood: {where}{first['msg']}. Correct it or remove it.") from error


def installation_key(home: Home) -> bytes:
    """The installation's own key, made at first use and readable by its user alone. Raises StoreError."""
    path = home.folder / KEY_FILE
    try:
        if not path.exists():
            _write_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read or written: {error.strerror}. Make the folder writable.") from error
    if len(key) != KEY_BYTES:
        raise StoreError(f"{path} is damaged. Put it back from a copy; without it marks made before cannot be read.")
    return key


def _write_key(path: Path) -> None:
    """Write a new key unless another process is first: linking a finished file either succeeds whole or not at all."""
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)
        except FileExistsError:
            return
    finally:
        partial.unlink(missing_ok=True)
