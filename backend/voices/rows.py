"""Voices as rows of the store."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from backend.voices.consent import Consent
from backend.voices.names import name_key
from backend.voices.voice import Voice, VoiceRecord

_CONSENT_COLUMNS = ("who", "given_at", "statement", "wording")


def write_voice_row(connection: sqlite3.Connection, record: VoiceRecord) -> None:
    """Store a voice and its consent, or replace what was stored.

    Raises:
        sqlite3.IntegrityError: another voice has its name.
    """
    without_consent = record.model_dump_json(exclude={"consent"})
    created_at = record.created_at.isoformat()
    connection.execute(
        "INSERT INTO voices (id, name, name_key, record, created_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET name = excluded.name, name_key = excluded.name_key, record = excluded.record",
        (record.id, record.name, name_key(record.name), without_consent, created_at),
    )
    consent = record.consent
    connection.execute(
        "INSERT OR REPLACE INTO consents (voice_id, who, given_at, statement, wording, spoken)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            record.id,
            consent.who,
            consent.given_at.isoformat(),
            consent.statement,
            consent.wording,
            consent.spoken.model_dump_json() if consent.spoken else None,
        ),
    )


def read_voice(connection: sqlite3.Connection, folder: Path, name_or_id: str) -> Voice | None:
    """Find a voice by name (in any case) or id; `folder` holds the folders of all voices."""
    row = connection.execute(
        "SELECT voices.record, consents.* FROM voices JOIN consents ON consents.voice_id = voices.id"
        " WHERE voices.name_key = ? OR voices.id = ? ORDER BY voices.name_key = ? DESC LIMIT 1",
        (name_key(name_or_id), name_or_id, name_key(name_or_id)),
    ).fetchone()
    if row is None:
        return None
    spoken = json.loads(row["spoken"]) if row["spoken"] else None
    consent = Consent.model_validate({**{name: row[name] for name in _CONSENT_COLUMNS}, "spoken": spoken})
    fields = json.loads(row["record"])
    return Voice.model_validate({**fields, "consent": consent, "folder": folder / row["voice_id"]})
