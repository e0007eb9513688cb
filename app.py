"""Encore: clone a voice, fine-tune it, choose by ear. Without a command this starts the studio in the browser."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys

from pydantic import SecretStr

from backend.errors import EncoreError
from backend.settings import Settings

# Each is a module of backend/commands, imported when it is asked for: what a fine-tune needs takes seconds to load.
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
    "serve": "serve the voices through an API like OpenAI's",
    "doctor": "check this machine, with a remedy for what is missing",
}


def build_parser(settings: Settings, chosen: str | None) -> argparse.ArgumentParser:
    """All commands; the options of the chosen one."""
    parser = argparse.ArgumentParser(prog="app.py", description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if name == chosen:
            importlib.import_module(f"backend.commands.{name}").add_parser(commands, settings)
        else:
            commands.add_parser(name, help=summary)
    # What stands before the word "studio" counts as much as what stands after it.
    studio = commands.add_parser("studio", help="start the studio (default)", argument_default=argparse.SUPPRESS)
    for one in (parser, studio):
        one.add_argument("--host", help=f"address to listen on (default: {settings.host})")
        one.add_argument("--port", type=int, help=f"port (default: {settings.port})")
        one.add_argument("--auth", metavar="USER:PASSWORD", help="ask for these; ENCORE_AUTH hides them better")
        one.add_argument("--share", action="store_true", help="also make a link that works from anywhere")
    given = {"host": settings.host, "port": settings.port, "share": settings.share}
    parser.set_defaults(run=lambda arguments: start_studio(settings, arguments), **given)
    return parser


def start_studio(settings: Settings, arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted."""
    from ui.layout import serve  # noqa: PLC0415 - Gradio takes seconds to load, and no other command needs it

    auth = settings.auth if arguments.auth is None else SecretStr(arguments.auth)
    given = {"host": arguments.host, "port": arguments.port, "share": arguments.share}
    return serve(settings.model_copy(update={**given, "auth": auth}))


def main(argv: list[str] | None = None) -> int:
    """Run one command; 2 means that something has to be put right first, and says what."""
    given = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in given if word in COMMANDS), None)
    try:
        settings = Settings.from_environment()
        settings.keep_compiled_code(makes_home=chosen is None)
        arguments = build_parser(settings, chosen).parse_args(given)
        logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
        return int(arguments.run(arguments))
    except EncoreError as error:
        print(f"encore: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
