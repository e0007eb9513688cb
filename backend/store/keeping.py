"""Keeps two places alike, such as a home and an object storage: a thread that looks at them every few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from backend.errors import EncoreError

_logger = logging.getLogger(__name__)


def keep_alike(
    name: str, sync: Callable[[], bool], failure: str, *, look_seconds: float, again_seconds: float
) -> threading.Event:
    """Call `sync` again and again in a thread, until it returns false or the event that is returned is set.

    Where it fails, `failure` is logged with the reason, once until it works again or fails otherwise,
    and it waits for `again_seconds` instead of `look_seconds`.
    """
    has_ended = threading.Event()

    def work() -> None:
        wait, told, goes_on = 0.0, "", True
        while goes_on and not has_ended.wait(wait):
            wait = look_seconds
            try:
                goes_on = sync()
                told = ""
            except (EncoreError, OSError) as error:
                wait = again_seconds
                if str(error) != told:
                    _logger.warning("%s: %s", failure, error)
                told = str(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return has_ended
