"""Loads what a command works with, once nothing is wrong with what was asked for."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import modules in this block: nothing of them is ever garbage, so it is not looked for.

    That is a sixth of the processor time of importing PyTorch and all that comes with it. What is in memory afterwards
    is left out of later searches, too: they would stop a take for a tenth of a second now and then, and take two at the
    end of the program.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(_thaw)
        if was_enabled:
            gc.enable()


def _thaw() -> None:
    """Let the end of the program collect all of it where Triton's binding would print what is left as leaks."""
    if "triton" in sys.modules:
        gc.unfreeze()
