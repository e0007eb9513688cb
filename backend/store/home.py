"""The home: the folder of everything Encore keeps, with its database."""

from __future__ import annotations

from pathlib import Path

from backend.store.database import Database


class Home:
    """`ENCORE_HOME` opened: a folder for what is kept in files, and the database beside them."""

    def __init__(self, folder: Path) -> None:
        """Open or create a home; every process of a run or a build must see its folder.

        Raises:
            StoreError: the folder cannot be created, or its database is damaged.
            StoreTooNew: it was written by a later version.
        """
        self.folder = folder.absolute()
        self.database = Database(folder)
