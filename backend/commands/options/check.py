"""What recordings say of themselves: signed, written in their tags, or marked in the sound.

The exit status is 0 if each of them carries a mark of Encore, 1 if one does not, and 2 if one cannot be checked.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.settings import Settings

MAX_HOURS = 24


def add_options(parser: argparse.ArgumentParser, _: Settings) -> None:
    """Describe the command's options."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=f"recordings, up to {MAX_HOURS} h each")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each file")
    parser.set_defaults(action="check.run")
