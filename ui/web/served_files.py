"""Files that the page plays, served under addresses that cannot be guessed."""

from __future__ import annotations

import os
import shutil
import threading
from collections import OrderedDict
from pathlib import Path

from ui.web.temporary import unguessable_path

MAX_FILES = 2000
"""Links cost nothing, copies do; a page shows some hundred clips at once at the very most."""


class ServedFiles:
    """Gives each file one place in the page's folder; a file that has changed gets another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: OrderedDict[tuple[Path, int, int], Path] = OrderedDict()
        self._lock = threading.Lock()

    def place(self, path: Path) -> Path | None:
        """Where the page may fetch `path` from; None where the file is gone."""
        try:
            status = path.stat()
        except OSError:
            return None
        key = (path, status.st_mtime_ns, status.st_size)
        with self._lock:
            place = self._places.get(key)
            if place is None:
                place = unguessable_path(self._folder, path.name)
                _link_or_copy(path, place)
                self._places[key] = place
            self._places.move_to_end(key)
            while len(self._places) > MAX_FILES:
                _, oldest = self._places.popitem(last=False)
                oldest.unlink(missing_ok=True)
        return place

    def forget(self, path: Path) -> None:
        """Serve a file no more, under whatever address it was brought."""
        with self._lock:
            for key in [key for key in self._places if key[0] == path]:
                self._places.pop(key).unlink(missing_ok=True)


def _link_or_copy(source: Path, destination: Path) -> None:
    try:
        os.link(source, destination)
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(source, destination)
