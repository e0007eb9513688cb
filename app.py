"""Encore: clone a voice, fine-tune it, choose by ear. Without a command this starts the studio in the browser."""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys

from pydantic import SecretStr

from backend.commands.loading import loading
from backend.commands.parser import COMMANDS, build_parser, run_command
from backend.errors import EncoreError
from backend.settings import Settings

CLOSED_OUTPUT = 141
"""Exit status of programs whose output is not read to its end, as shells know it."""


def start_studio(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve the page until interrupted."""
    auth = settings.auth if arguments.auth is None else SecretStr(arguments.auth)
    given = {"host": arguments.host, "port": arguments.port, "share": arguments.share}
    settings = settings.model_copy(update={**given, "auth": auth})
    # Refused before the seconds that Gradio takes to load.
    settings.credentials()
    with loading():
        from ui.layout import serve  # noqa: PLC0415 - no other command needs it

    return serve(settings)


def _is_output_read() -> bool:
    """Whether somebody still reads what is printed; `head`, for example, leaves when it has had enough."""
    output = select.poll()
    output.register(sys.stdout, select.POLLOUT)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0)):
        return True
    # Python would try to print the rest when it ends, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return False


def main(argv: list[str] | None = None) -> int:
    """Run one command; 2 means that something has to be put right first, and says what."""
    given = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in given if word in COMMANDS), None)
    try:
        settings = Settings.from_environment()
        settings.keep_compiled_code(makes_home=chosen is None)
        arguments = build_parser(settings, chosen).parse_args(given)
        logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
        status = run_command(arguments, settings) if arguments.action else start_studio(arguments, settings)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if _is_output_read():
            raise
        return CLOSED_OUTPUT
    except EncoreError as error:
        print(f"encore: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
