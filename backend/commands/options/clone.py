"""Speak a text in the voice of a recording whose speaker has agreed."""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.commands.options.shared import (
    add_consent_options,
    add_model_options,
    add_seed_option,
    add_statement_options,
)
from backend.settings import Settings


def add_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Describe the command's options."""
    add_model_options(parser, settings)
    parser.add_argument(
        "--reference", type=Path, required=True, metavar="FILE", help="recording of the voice, 1 s to 5 min"
    )
    parser.add_argument(
        "--transcript", metavar="TEXT", help="what the recording says, word for word: clones in context"
    )
    parser.add_argument("--text", required=True, help="what to say")
    parser.add_argument("--language", default="auto", help="language of the text (default: auto)")
    add_seed_option(parser)
    parser.add_argument(
        "--stream", action="store_true", help="decode in small chunks as for a listener, without a second try"
    )
    add_consent_options(parser)
    add_statement_options(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE.wav", help="WAV file to write; FILE.wav.json says how"
    )
    parser.set_defaults(action="clone.run")
