"""`app.py trash`: what was deleted; to bring it back, or to remove it for good."""

from __future__ import annotations

import argparse
import sys

from backend.settings import Settings
from backend.store.home import Home
from backend.store.trash import Deleted, Trash


def conclude_deletion(settings: Settings, deleted: Deleted, *, for_good: bool) -> int:
    """Say how a deletion can be undone, or remove what was deleted for good."""
    if for_good:
        Trash(Home(settings.home_folder)).purge(deleted.id, missing_ok=True)
        print(f"{deleted.label} is gone for good.")
    else:
        until = deleted.kept_until.astimezone()
        print(
            f"{deleted.label} is deleted. Until {until:%Y-%m-%d %H:%M}, `app.py trash restore {deleted.id[:8]}` undoes "
            "it; `app.py trash empty` frees its space."
        )
    return 0


def run_list(_: argparse.Namespace, settings: Settings) -> int:
    """One line per thing."""
    trash = Trash(Home(settings.home_folder))
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
    trash = Trash(Home(settings.home_folder))
    matching = [one.id for one in trash.list() if arguments.id and one.id.startswith(arguments.id)]
    restored = trash.restore(matching[0] if len(matching) == 1 else arguments.id)
    print(f"{restored.label} is back.")
    return 0


def run_empty(_: argparse.Namespace, settings: Settings) -> int:
    """Free the space."""
    print(f"{Trash(Home(settings.home_folder)).empty()} things are gone for good.")
    return 0
