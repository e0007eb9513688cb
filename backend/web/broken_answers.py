"""Keeps uvicorn from reporting an answer without an end: the program that left it so has said why."""

from __future__ import annotations

import logging

_SAID = "ASGI callable returned without completing response."


def hush_broken_answers() -> None:
    """Leave that line out of the log of this process; may be called twice."""
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg != _SAID
