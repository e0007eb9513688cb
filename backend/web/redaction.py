"""Messages for those who are not at the server: what happened and what to do, not where its files are."""

from __future__ import annotations

import logging
import re
from pathlib import Path

_PATH = re.compile(r"""(?<![\w./:-])(/[^\s/'"<>]+)(?:/[^\s/'"<>]+)*/([^\s/'"<>]*)""")

_logger = logging.getLogger(__name__)


def public_message(error: object) -> str:
    """The error's message with the last part of each path alone; the whole one goes to the log."""
    whole = str(error)
    shown = _PATH.sub(_shorten, whole)
    if shown != whole:
        _logger.warning("shown without its path: %s", whole)
    return shown


def _shorten(match: re.Match[str]) -> str:
    """What is no folder of this machine is left as it is: an address of the API, or what was typed."""
    return f"…/{match.group(2)}" if Path(match.group(1)).is_dir() else match.group()
