"""The voices there are; making, giving away, receiving and removing them."""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.commands.options.shared import (
    add_consent_options,
    add_for_good_option,
    add_synthetic_option,
    add_tenant_option,
)
from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Describe the command's options."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_verb(verbs, "list", "list the voices")
    _add_add(verbs, settings)
    export = _add_verb(verbs, "export", "write a voice with its consent to one file")
    export.add_argument("name", metavar="NAME")
    export.add_argument("--output", type=Path, default=Path(), metavar="PATH", help="file or folder (default: here)")
    received = _add_verb(verbs, "import", "make a voice of a file somebody exported")
    received.add_argument("file", type=Path, metavar="FILE")
    received.add_argument("--name", help="what to call it here (default: its own name)")
    rename = _add_verb(verbs, "rename", "call a voice something else")
    rename.add_argument("name", metavar="NAME")
    rename.add_argument("new_name", metavar="NEW")
    delete = _add_verb(verbs, "delete", "remove a voice, its recording and its consent")
    delete.add_argument("name", metavar="NAME")
    add_for_good_option(delete)


def _add_add(verbs: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    parser = _add_verb(verbs, "add", "clone a voice from recordings")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--recording", type=Path, nargs="+", required=True, metavar="FILE", help="1 s to 5 min in all")
    parser.add_argument(
        "--transcript", metavar="TEXT", help="what the recordings say, word for word: clones in context"
    )
    parser.add_argument("--language", default="auto", help="language of the voice (default: auto)")
    parser.add_argument("--model", default=settings.model, help="base model it is meant for (default: %(default)s)")
    add_synthetic_option(parser, "clone also from")
    add_consent_options(parser)


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=summary)
    add_tenant_option(parser)
    parser.set_defaults(action=f"voices.run_{name}")
    return parser
