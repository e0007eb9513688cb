"""Keys of the API: whose they are, and how much their tenants may do."""

from __future__ import annotations

import argparse

from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, _: Settings) -> None:
    """Describe the command's options."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    add = _add_verb(verbs, "add", "make a key, which is shown this once")
    add.add_argument(
        "tenant",
        nargs="?",
        metavar="TENANT",
        default="operator",
        help="whose it is, also a new one (default: operator)",
    )
    add.add_argument("--label", default="", metavar="TEXT", help="what it is for")
    listing = _add_verb(verbs, "list", "the keys there are, and when they were last used")
    listing.add_argument("--all", action="store_true", help="revoked ones too")
    revoke = _add_verb(verbs, "revoke", "let a key open nothing any more; within a second, also in servers that run")
    revoke.add_argument("id", metavar="ID", help="as `keys list` shows it")
    limits = _add_verb(verbs, "limits", "show a tenant's limits and what is left of them; with options, change them")
    limits.add_argument("tenant", metavar="TENANT")
    for option, purpose in (
        ("--requests-per-minute", "requests to the API"),
        ("--characters-per-day", "characters to be spoken"),
        ("--max-voices", "voices"),
    ):
        limits.add_argument(option, type=_limit, metavar="N", help=f"{purpose}; none for any number, or default")


def _limit(given: str) -> int | str:
    if given in ("none", "default"):
        return given
    try:
        return int(given)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{given!r} is neither a number nor none nor default") from None


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=summary)
    parser.set_defaults(action=f"keys.run_{name}")
    return parser
