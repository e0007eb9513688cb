"""How much a tenant may do: what the settings say for all, and where one of them differs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from backend.settings import Settings
from backend.store.database import Database
from backend.store.rows import understanding


class Limits(BaseModel):
    """Of one tenant; None where there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: PositiveInt | None = None
    """As many at once, and as many again evenly over each minute."""
    characters_per_day: PositiveInt | None = None
    """Of the texts that are spoken, from midnight to midnight UTC."""
    max_voices: NonNegativeInt | None = None

    @property
    def has_usage(self) -> bool:
        """Whether anything has to be counted for them."""
        return self.requests_per_minute is not None or self.characters_per_day is not None


def limits_of_settings(settings: Settings) -> Limits:
    """Those of tenants for whom nothing else was said."""
    return Limits(
        requests_per_minute=settings.requests_per_minute,
        characters_per_day=settings.characters_per_day,
        max_voices=settings.max_voices,
    )


class LimitChanges(Limits):
    """Where a tenant's limits differ: only fields that were set count, and None among them lifts a limit."""

    def applied_to(self, limits: Limits) -> Limits:
        """The limits of the tenant."""
        return limits.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})


class LimitTable:
    """Stores the changes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, LimitChanges]:
        """By tenant. Raises StoreError."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT tenant, changes FROM tenant_limits").fetchall()
        found = {}
        for row in rows:
            # Not skipped: a limit that cannot be read would be none.
            with understanding(f"the limits of the tenant {row['tenant']}"):
                found[row["tenant"]] = LimitChanges.model_validate_json(row["changes"])
        return found

    def save(self, tenant: str, changes: LimitChanges) -> None:
        """Replace those of a tenant. Raises StoreError."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO tenant_limits (tenant, changes) VALUES (?, ?)",
                (tenant, changes.model_dump_json(exclude_unset=True)),
            )
