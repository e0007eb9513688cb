"""`app.py keys`: keys of the API and the limits of those who have them."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime

from pydantic import ValidationError

from backend.settings import Settings
from backend.store.home import Home
from backend.tenants.errors import TenantError
from backend.tenants.keys import ApiKeys
from backend.tenants.limits import LimitChanges, Limits, LimitTable, limits_of_settings
from backend.tenants.names import parse_tenant, shown_tenant
from backend.tenants.usage import Usage

_FIELDS = ("requests_per_minute", "characters_per_day", "max_voices")


def run_add(arguments: argparse.Namespace, settings: Settings) -> int:
    """Make a key; it alone goes to stdout, so that a script can store it."""
    tenant = parse_tenant(arguments.tenant)
    keys = ApiKeys(Home(settings.home_folder).database)
    is_first = not keys.list() and not settings.accepted_keys(has_others=True)
    made, key = keys.add(tenant, arguments.label)
    print(key)
    print(
        f"This is a key of {shown_tenant(tenant)}, with the id {made.id}. Keep it: only its hash is stored.",
        file=sys.stderr,
    )
    if is_first:
        print(
            "From now on the API asks everybody for a key, also on this machine. `app.py keys add` makes one for you.",
            file=sys.stderr,
        )
    return 0


def run_list(arguments: argparse.Namespace, settings: Settings) -> int:
    """One line per key."""
    found = ApiKeys(Home(settings.home_folder).database).list()
    for key in found:
        if key.revoked_at is not None and not arguments.all:
            continue
        used = "not used yet" if key.last_used_at is None else f"used {_moment(key.last_used_at)}"
        print(
            f"{key.id}\t{shown_tenant(key.tenant)}\tmade {_moment(key.created_at)}\t{used}"
            + (f"\trevoked {_moment(key.revoked_at)}" if key.revoked_at is not None else "")
            + (f"\t{key.label}" if key.label else "")
        )
    if not found:
        print("No key was made yet. Make one with `app.py keys add`.", file=sys.stderr)
    return 0


def run_revoke(arguments: argparse.Namespace, settings: Settings) -> int:
    """Close the API to a key; what belongs to its tenant stays."""
    revoked = ApiKeys(Home(settings.home_folder).database).revoke(arguments.id)
    print(f"{revoked.id} of {shown_tenant(revoked.tenant)} opens nothing any more.")
    return 0


def run_limits(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show or change limits."""
    home = Home(settings.home_folder)
    tenant, table = ApiKeys(home.database).require_tenant(parse_tenant(arguments.tenant)), LimitTable(home.database)
    changes = table.all().get(tenant, LimitChanges())
    given = {name: value for name in _FIELDS if (value := getattr(arguments, name)) is not None}
    if given:
        changes = _changed(changes, given)
        table.save(tenant, changes)
    limits = changes.applied_to(limits_of_settings(settings))
    for name in _FIELDS:
        value = getattr(limits, name)
        left = _left(name, Usage(home.database), tenant, limits)
        origin = "" if name in changes.model_fields_set else " (as for all)"
        print(f"{name.replace('_', ' ')}\t{'any number' if value is None else value}{origin}{left}")
    return 0


def _changed(changes: LimitChanges, given: dict[str, int | str]) -> LimitChanges:
    kept = changes.model_dump(exclude_unset=True)
    for name, value in given.items():
        if value == "default":
            kept.pop(name, None)
        else:
            kept[name] = None if value == "none" else value
    try:
        return LimitChanges.model_validate(kept)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise TenantError(f"--{option} {first['input']}: {first['msg']}. Give a larger number, or none.") from error


def _left(name: str, usage: Usage, tenant: str, limits: Limits) -> str:
    if name == "characters_per_day" and limits.characters_per_day is not None:
        return f", {usage.characters_left(tenant, limits.characters_per_day).remaining} left today"
    return ""


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"
