"""Encore: clone a voice, fine-tune it, choose by ear.

Without a command this starts the studio, a page in the browser.
"""

from __future__ import annotations

import argparse
import logging
import sys

from backend.commands import clone, doctor
from backend.errors import EncoreError
from backend.settings import Settings


def build_parser(settings: Settings) -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(prog="app.py", description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (clone, doctor):
        command.add_parser(commands, settings)
    studio = commands.add_parser("studio", help="start the studio (the same as no command)")
    for studio_parser in (parser, studio):
        studio_parser.add_argument("--host", default=settings.host, help="address to listen on (default: %(default)s)")
        studio_parser.add_argument("--port", type=int, default=settings.port, help="port (default: %(default)s)")
        studio_parser.set_defaults(run=lambda arguments: start_studio(settings, arguments))
    return parser


def start_studio(settings: Settings, arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted."""
    # Imported here: Gradio takes seconds to load, and no other command needs it.
    from ui.layout import serve  # noqa: PLC0415 - see above

    return serve(settings.model_copy(update={"host": arguments.host, "port": arguments.port}))


def main(argv: list[str] | None = None) -> int:
    """Run one command; 2 means that something has to be put right first, and says what."""
    try:
        settings = Settings.from_environment()
        arguments = build_parser(settings).parse_args(argv)
        logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
        return int(arguments.run(arguments))
    except EncoreError as error:
        print(f"encore: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
