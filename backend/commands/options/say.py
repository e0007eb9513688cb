"""Speak a text in a stored voice."""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.commands.options.shared import add_model_options, add_seed_option, add_statement_options
from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Describe the command's options."""
    add_model_options(parser, settings)
    parser.add_argument("--voice", required=True, metavar="NAME", help="one of `voices list`")
    parser.add_argument("--text", required=True, help="what to say")
    parser.add_argument("--language", help="language of the text (default: the voice's own)")
    parser.add_argument("--style", default="", help="one of the voice's own: `voices list` shows them")
    add_seed_option(parser)
    add_statement_options(parser)
    parser.add_argument("--speed", type=float, default=1.0, help="2 is twice as fast (default: 1)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="wav, flac, mp3, opus, aac, m4a or pcm by its suffix (default: the voice's name in this folder, as WAV)",
    )
    parser.set_defaults(action="say.run")
