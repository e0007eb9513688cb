"""What can go wrong with sound that is made here; what can be wrong with recordings is in `backend/errors.py`."""

from __future__ import annotations

from backend.errors import EncoreError


class AudioFormatError(EncoreError):
    """A format or a speed that cannot be made."""
