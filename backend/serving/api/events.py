"""Server-sent events, as OpenAI's clients read speech."""

from __future__ import annotations

import json
from typing import Any

from backend.errors import EncoreError
from backend.serving.api.errors import body_of

SSE_MEDIA_TYPE = "text/event-stream"


def event(kind: str, fields: dict[str, Any]) -> bytes:
    """One event."""
    return f"data: {json.dumps({'type': kind, **fields})}\n\n".encode()


def error_event(error: EncoreError) -> bytes:
    """The last event of a speech that breaks off."""
    return event("speech.audio.error", body_of(error))
