"""What processes that were killed have left in a home: swept at start, once its owner is gone."""

from __future__ import annotations

import logging
import shutil
import tempfile
from itertools import chain
from pathlib import Path

from training.model.checkpoint.atomic_folder import sweep_folder
from training.model.owner import TEMPORARY_PREFIX, is_abandoned

WORKING_FOLDERS = ("takes/incoming", "artifacts/incoming", "cache/unpacked")
"""All in them is being worked on, or was left behind."""

FILLED_FOLDERS = ("voices", "datasets")
"""Folders appear whole in them, and are filled under names of their own."""

_logger = logging.getLogger(__name__)


def sweep_leftovers(home: Path) -> None:
    """Remove working files and folders whose owner is gone, also temporary ones; see `is_abandoned` for the rule."""
    working = ((home / name).glob("*") for name in WORKING_FOLDERS)
    # Recordings that were being read, perhaps of other people.
    for leftover in chain(*working, Path(tempfile.gettempdir()).glob(f"{TEMPORARY_PREFIX}*")):
        if is_abandoned(leftover):
            _logger.info("removing %s, whose process is gone", leftover)
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
    for name in FILLED_FOLDERS:
        if (home / name).is_dir():
            sweep_folder(home / name)
