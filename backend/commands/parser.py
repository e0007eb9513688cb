"""All commands of `app.py`, which of them a line asks for, and its options."""

from __future__ import annotations

import argparse
import importlib

from backend.commands.loading import loading
from backend.commands.one_line_parser import OneLineParser
from backend.commands.options.shared import parse_port
from backend.settings import Settings

DESCRIPTION = "Encore: clone a voice, fine-tune it, choose by ear. Without a command, start the studio."

# Each is a module of backend/commands, with its options in backend/commands/options. The former is imported when it is
# run: what a fine-tune needs takes seconds to load, and help and usage errors need none of it.
COMMANDS = {
    "clone": "speak a text in the voice of a recording",
    "dataset": "make a training set of recordings, look at it, export it, delete it",
    "finetune": "fine-tune a voice on a dataset",
    "runs": "list, show, cancel, resume and delete fine-tunes",
    "pipeline": "recordings to a fine-tuned voice and a report, in one go",
    "say": "speak a text with a voice of the library",
    "voices": "list, add, export, import and delete voices",
    "trash": "restore what was deleted, or remove it for good",
    "check": "say whether recordings were made by Encore",
    "keys": "make, list and revoke keys of the API, and limit what their tenants may do",
    "serve": "serve the voices through an API like OpenAI's",
    "doctor": "check this machine, with a remedy for what is missing",
}


def build_parser(settings: Settings, chosen: str | None) -> argparse.ArgumentParser:
    """All commands; the options of the one that is `chosen`."""
    parser = OneLineParser(prog="app.py", description=DESCRIPTION)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == chosen:
            options = importlib.import_module(f"backend.commands.options.{name}")
            command.description = options.__doc__
            options.add_options(command, settings)
    # What stands before the word "studio" counts as much as what stands after it.
    studio = commands.add_parser("studio", help="start the studio (default)", argument_default=argparse.SUPPRESS)
    for one in (parser, studio):
        one.add_argument("--host", help=f"address to listen on (default: {settings.host})")
        one.add_argument("--port", type=parse_port, help=f"port (default: {settings.port})")
        one.add_argument("--auth", metavar="USER:PASSWORD", help="ask for these; ENCORE_AUTH hides them better")
        one.add_argument("--share", action="store_true", help="also make a link that works from anywhere")
    given = {"host": settings.host, "port": settings.port, "share": settings.share}
    parser.set_defaults(action="", **given)
    return parser


def run_command(arguments: argparse.Namespace, settings: Settings) -> int:
    """Do what the options of the chosen command name, such as `voices.run_list`; EncoreError says why it cannot."""
    command, _, function = arguments.action.partition(".")
    with loading():
        module = importlib.import_module(f"backend.commands.{command}")
    return int(getattr(module, function)(arguments, settings))
