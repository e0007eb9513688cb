"""What can go wrong with tenants and their keys."""

from __future__ import annotations

from backend.errors import EncoreError


class TenantError(EncoreError):
    """A tenant, a key or a limit cannot be made, found or changed."""


class QuotaExceeded(EncoreError):
    """A tenant has used what it may; there is more after `retry_after_seconds`."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)
