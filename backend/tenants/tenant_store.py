"""What is stored of tenants: keys, limits, and what they have used; in this home, or asked for elsewhere."""

from __future__ import annotations

from typing import Protocol

from backend.store.home import Home
from backend.tenants.keys import ApiKey, ApiKeys
from backend.tenants.limits import LimitChanges, LimitTable
from backend.tenants.usage import Left, Usage


class UsageStore(Protocol):
    """What tenants have used; see `Usage`."""

    def take_request(self, tenant: str, per_minute: int) -> Left:
        """Count a request, if there is one left. Raises QuotaExceeded."""

    def requests_left(self, tenant: str, per_minute: int) -> Left:
        """What is left now; counts nothing."""

    def spend_characters(self, tenant: str, number: int, per_day: int) -> str:
        """Count characters, if so many are left; returns the day they belong to. Raises QuotaExceeded."""

    def require_characters(self, tenant: str, number: int, per_day: int) -> None:
        """Refuse what cannot be spoken in whole, and count nothing. Raises QuotaExceeded."""

    def give_back(self, tenant: str, number: int, day: str) -> None:
        """Take back characters of a day that were not spoken after all."""

    def characters_left(self, tenant: str, per_day: int) -> Left:
        """What is left of today."""


class TenantStore(Protocol):
    """Keys and limits; may be asked from any thread, and may wait. Raises EncoreError where it cannot be read."""

    @property
    def usage(self) -> UsageStore:
        """Counts."""

    def keys(self) -> tuple[ApiKey, ...]:
        """All keys, revoked ones too."""

    def limits(self) -> dict[str, LimitChanges]:
        """Where the limits of a tenant differ."""

    def mark_used(self, key_id: str) -> None:
        """Remember that a key was used just now."""


class HomeTenants:
    """Those of one home; any number of processes may have it open."""

    def __init__(self, home: Home) -> None:
        """Read from the home's database, and count there."""
        self.usage = Usage(home.database)
        self._keys, self._table = ApiKeys(home.database), LimitTable(home.database)

    def keys(self) -> tuple[ApiKey, ...]:
        """All keys, revoked ones too. Raises StoreError."""
        return self._keys.list()

    def limits(self) -> dict[str, LimitChanges]:
        """Where the limits of a tenant differ. Raises StoreError."""
        return self._table.all()

    def mark_used(self, key_id: str) -> None:
        """Remember that a key was used just now. Raises StoreError."""
        self._keys.mark_used(key_id)
