"""The speech API, on Ray Serve or in this process alone."""

from __future__ import annotations

import argparse

from backend.commands.options.shared import add_model_options, parse_port, whole_number
from backend.settings import MAX_CHARACTERS, Settings

DEFAULT_PORT = 8000


def add_options(parser: argparse.ArgumentParser, settings: Settings) -> None:
    """Describe the command's options."""
    add_model_options(parser, settings)
    parser.add_argument(
        "--voice", action="append", default=[], metavar="NAME", help="make this voice ready before the first request"
    )
    parser.add_argument("--host", default=settings.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=parse_port, default=DEFAULT_PORT, help="port (default: %(default)s)")
    parser.add_argument(
        "--num-replicas",
        type=_replicas,
        default=(1, 1),
        metavar="N or MIN-MAX",
        help="processes that speak; with MIN-MAX as many as there is work for (default: 1)",
    )
    parser.add_argument(
        "--num-ingresses",
        type=whole_number(1),
        default=1,
        help="processes that take requests, on Ray (default: %(default)s)",
    )
    parser.add_argument("--num-gpus", type=float, default=0.0, help="GPUs of each process (default: 0)")
    parser.add_argument(
        "--num-slots", type=whole_number(1), default=8, help="takes spoken at once by each process (default: 8)"
    )
    parser.add_argument(
        "--max-characters",
        "--most-characters",
        dest="max_characters",
        type=whole_number(1),
        default=MAX_CHARACTERS,
        metavar="N",
        help="refuse a request whose text is longer (default: %(default)s)",
    )
    parser.add_argument("--local", action="store_true", help="serve from this process alone, without Ray")
    parser.set_defaults(action="serve.run")


def _replicas(value: str) -> tuple[int, int]:
    least, dash, most = value.partition("-")
    most = most if dash else least
    if not (least.isdecimal() and most.isdecimal()) or not 1 <= int(least) <= int(most):
        raise argparse.ArgumentTypeError(f"{value!r} is no number of replicas; write 2, or 1-4")
    return int(least), int(most)
