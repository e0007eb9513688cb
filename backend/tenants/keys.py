"""Keys of the API that were made here: only their hashes are stored, and a revoked one is never forgotten."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from backend.store.copies import DATABASE_FILE
from backend.store.database import Database
from backend.tenants.errors import TenantError

KEY_PREFIX = "encore-"
"""So that people, and scanners for leaked secrets, see what it is."""

_NUM_BYTES = 32
_MAX_LABEL = 100
_COLUMNS = "id, tenant, label, digest, created_at, last_used_at, revoked_at"


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key, without the key.

    Attributes:
        id: by which it is revoked.
        tenant: whose it is.
        label: what it is for, in the operator's words.
        digest: SHA-256 of the key; it is random and long, so that nothing slower is needed.
        last_used_at: to the minute; None before its first use.
        revoked_at: from when on it opens nothing; None while it does.
    """

    id: str
    tenant: str
    label: str
    digest: bytes
    created_at: float
    last_used_at: float | None
    revoked_at: float | None


def digest_of(key: str | bytes) -> bytes:
    """What is stored and compared instead of a key: a text, or one that is encoded already."""
    return hashlib.sha256(key if isinstance(key, bytes) else key.encode()).digest()


class ApiKeys:
    """The keys of one home; any number of processes may have it open."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tenant: str, label: str = "") -> tuple[ApiKey, str]:
        """Make a key; it is returned beside its record, and cannot be read again. Raises StoreError."""
        key = KEY_PREFIX + secrets.token_urlsafe(_NUM_BYTES)
        made = ApiKey(
            id=secrets.token_hex(4),
            tenant=tenant,
            label=" ".join(label.split())[:_MAX_LABEL],
            digest=digest_of(key),
            created_at=time.time(),
            last_used_at=None,
            revoked_at=None,
        )
        with self._database.transaction() as connection:
            connection.execute(
                f"INSERT INTO api_keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, NULL, NULL)",
                (made.id, made.tenant, made.label, made.digest.hex(), made.created_at),
            )
        return made, key

    @classmethod
    def exist_in(cls, home: Path) -> bool:
        """Whether a key was ever made in a home, which is not made for that. Raises StoreError."""
        return (home / DATABASE_FILE).is_file() and bool(cls(Database(home)).list())

    def list(self) -> tuple[ApiKey, ...]:
        """All keys, revoked ones too, the oldest first. Raises StoreError."""
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, id").fetchall()
        return tuple(_key(row) for row in rows)

    def revoke(self, key_id: str) -> ApiKey:
        """Let a key open nothing any more. Raises TenantError where no key of that id is in use."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (time.time(), key_id)
            )
            if not changed.rowcount:
                raise TenantError(f"No key {key_id[:40]!r} is in use. `app.py keys list` shows their ids.")
            return _key(connection.execute(f"SELECT {_COLUMNS} FROM api_keys WHERE id = ?", (key_id,)).fetchone())

    def mark_used(self, key_id: str) -> None:
        """Remember that it was used just now. Raises StoreError."""
        with self._database.transaction(is_durable=False) as connection:
            connection.execute("UPDATE api_keys SET last_used_at = ? WHERE id = ?", (time.time(), key_id))

    def require_tenant(self, tenant: str) -> str:
        """The tenant, if there was ever a key for it, or it is the operator. Raises TenantError."""
        known = sorted({key.tenant for key in self.list() if key.tenant})
        if tenant and tenant not in known:
            there_are = f"Known are: {', '.join(known)}." if known else "There is none yet."
            raise TenantError(f"There is no tenant {tenant!r}. {there_are} `app.py keys add {tenant}` makes it.")
        return tenant


def _key(row: sqlite3.Row) -> ApiKey:
    return ApiKey(**(dict(row) | {"digest": bytes.fromhex(row["digest"])}))
