"""`app.py trash`: what was deleted; to bring it back, or to remove it for good."""

from __future__ import annotations

import argparse
import sys

from backend.commands.tenant_home import home_of
from backend.settings import Settings
from backend.store.home import Home
from backend.store.trash import Deleted, Trash


def conclude_deletion(home: Home, deleted: Deleted, *, for_good: bool) -> int:
    """Say how a deletion can be undone, or remove what was deleted for good."""
    if for_good:
        Trash(home).purge(deleted.id, missing_ok=True)
        print(f"{deleted.label} is gone for good.")
    else:
        until = deleted.kept_until.astimezone()
        whose = f" --tenant {home.tenant}" if home.tenant else ""
        print(
            f"{deleted.label} is deleted. Until {until:%Y-%m-%d %H:%M}, `app.py trash restore {deleted.id[:8]}{whose}` "
            f"undoes it; `app.py trash empty{whose}` frees its space."
        )
    return 0


def run_list(arguments: argparse.Namespace, settings: Settings) -> int:
    """One line per thing."""
    trash = Trash(home_of(arguments, settings))
    trash.sweep()
    found = trash.list()
    for one in found:
        until = one.kept_until.astimezone()
        print(f"{one.id[:8]}\t{one.kind}\t{one.label}\t{one.num_bytes / 1e6:.1f} MB\tuntil {until:%Y-%m-%d %H:%M}")
    if not found:
        print("The trash is empty.", file=sys.stderr)
    return 0


def run_restore(arguments: argparse.Namespace, settings: Settings) -> int:
    """Bring one thing back."""
    trash = Trash(home_of(arguments, settings))
    matching = [one.id for one in trash.list() if arguments.id and one.id.startswith(arguments.id)]
    restored = trash.restore(matching[0] if len(matching) == 1 else arguments.id)
    print(f"{restored.label} is back.")
    return 0


def run_empty(arguments: argparse.Namespace, settings: Settings) -> int:
    """Free the space."""
    print(f"{Trash(home_of(arguments, settings)).empty()} things are gone for good.")
    return 0
