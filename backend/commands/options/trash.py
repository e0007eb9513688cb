"""What was deleted; to bring it back, or to remove it for good."""

from __future__ import annotations

import argparse

from backend.commands.options.shared import add_tenant_option
from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, _: Settings) -> None:
    """Describe the command's options."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="what can be restored, deleted last first")
    add_tenant_option(listing)
    listing.set_defaults(action="trash.run_list")
    restore = verbs.add_parser("restore", help="undo a deletion")
    restore.add_argument("id", metavar="ID", help="as `trash list` shows it; its beginning is enough")
    add_tenant_option(restore)
    restore.set_defaults(action="trash.run_restore")
    empty = verbs.add_parser("empty", help="remove everything for good")
    add_tenant_option(empty)
    empty.set_defaults(action="trash.run_empty")
