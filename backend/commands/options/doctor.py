"""What this machine can do and what to do where it cannot; and whether what is kept is intact."""

from __future__ import annotations

import argparse

from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, _: Settings) -> None:
    """Describe the command's options."""
    parser.add_argument("--verify", action="store_true", help="read everything that is kept and compare its hashes")
    parser.add_argument(
        "--restore-database",
        action="store_true",
        help="put the newest good copy of the database in its place; the present one is set aside",
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON, for programs")
    parser.set_defaults(action="doctor.run")
