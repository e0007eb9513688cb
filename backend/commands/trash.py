"""`app.py trash`: what was deleted; to bring it back, or to remove it for good."""

from __future__ import annotations

import argparse
import sys

from backend.settings import Settings
from backend.store.home import Home
from backend.store.trash import Deleted, Trash


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Describe the command's options."""
    parser = commands.add_parser("trash", help="restore what was deleted, or remove it for good", description=__doc__)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="what can be restored, deleted last first")
    listing.set_defaults(run=lambda arguments: run_list(settings))
    restore = verbs.add_parser("restore", help="undo a deletion")
    restore.add_argument("id", metavar="ID", help="as `trash list` shows it; its beginning is enough")
    restore.set_defaults(run=lambda arguments: run_restore(arguments, settings))
    empty = verbs.add_parser("empty", help="remove everything for good")
    empty.set_defaults(run=lambda arguments: run_empty(settings))


def add_for_good_option(parser: argparse.ArgumentParser) -> None:
    """The option of every command that deletes."""
    parser.add_argument("--for-good", action="store_true", help="at once; without it, it can be restored for a day")


def conclude_deletion(settings: Settings, deleted: Deleted, *, for_good: bool) -> int:
    """Say how a deletion can be undone, or remove what was deleted for good."""
    if for_good:
        Trash(Home(settings.home_folder)).purge(deleted.id)
        print(f"{deleted.label} is gone for good.")
    else:
        until = deleted.kept_until.astimezone()
        print(
            f"{deleted.label} is deleted. Until {until:%Y-%m-%d %H:%M}, `app.py trash restore {deleted.id[:8]}` undoes "
            "it; `app.py trash empty` frees its space."
        )
    return 0


def run_list(settings: Settings) -> int:
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


def run_empty(settings: Settings) -> int:
    """Free the space."""
    print(f"{Trash(Home(settings.home_folder)).empty()} things are gone for good.")
    return 0
