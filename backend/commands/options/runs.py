"""List, show and steer fine-tunes."""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.commands.options.shared import add_for_good_option
from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, _: Settings) -> None:
    """Describe the command's options."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="all runs, the newest first")
    listing.set_defaults(action="runs.run_list")
    for name, summary in (
        ("export", "write its best checkpoint, or another one"),
        ("show", "state, scores and what happened"),
        ("log", "what it printed"),
        ("cancel", "end it; its last checkpoint is kept"),
        ("pause", "end it after a checkpoint, to be resumed"),
        ("resume", "go on from its last checkpoint, and follow it"),
        ("report", "write its page"),
    ):
        one = verbs.add_parser(name, help=summary, description=summary)
        one.add_argument("run_id", metavar="RUN")
        if name == "resume":
            one.add_argument("--detach", action="store_true", help="return at once")
        if name == "export":
            one.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="a new folder")
            one.add_argument("--checkpoint", metavar="NAME", help="such as step-00000120 (default: the best one)")
            one.add_argument(
                "--merged",
                action="store_true",
                help="of an adapter: whole models in the public format, custom_voice and base, as other runs have",
            )
        if name == "report":
            one.add_argument("--output", type=Path, metavar="FILE.html", help="(default: in the run's folder)")
        one.set_defaults(action=f"runs.run_{name}")
    delete = verbs.add_parser("delete", help="forget it and remove its files")
    delete.add_argument("run_id", metavar="RUN")
    add_for_good_option(delete)
    delete.set_defaults(action="runs.run_delete")
