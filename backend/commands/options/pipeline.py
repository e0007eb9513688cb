"""From recordings to a fine-tuned voice with a report, in one command."""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.commands.options.finetune import add_training_options
from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Describe the command's options."""
    parser.add_argument("recordings", nargs="+", type=Path, metavar="RECORDING", help="files, folders or archives")
    parser.add_argument("--voice", required=True, metavar="NAME", help="name of the new voice")
    add_training_options(parser, settings)
    parser.add_argument("--dataset", metavar="NAME", help="name of the dataset (default: made of the voice's)")
    parser.add_argument("--language", default="auto", help="spoken in the recordings (default: %(default)s)")
    parser.add_argument(
        "--transcripts", type=Path, action="append", default=[], metavar="PATH", help="texts of the recordings"
    )
    parser.add_argument("--whisper", metavar="MODEL", help="name or path of a Whisper model, or none")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="where the report goes as well")
    parser.set_defaults(action="pipeline.run")
