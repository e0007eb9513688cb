"""The home: the folder of everything Encore keeps, with its database."""

from __future__ import annotations

import copy
from pathlib import Path

from backend.store.database import Database


class Home:
    """`ENCORE_HOME` opened: a folder for what is kept in files, and the database beside them.

    Stores that are opened on it show and change only what belongs to its tenant.
    """

    def __init__(self, folder: Path, tenant: str = "") -> None:
        """Open or create a home; every process of a run or a build must see its folder.

        Args:
            folder: of everything that is kept.
            tenant: whose things are looked at; empty for the operator's own.

        Raises:
            StoreError: the folder cannot be created, or its database is damaged.
            StoreTooNew: it was written by a later version.
        """
        self.folder, self.tenant = folder.absolute(), tenant
        self.database = Database(folder)

    def of_tenant(self, tenant: str) -> Home:
        """The same home as another tenant sees it; costs nothing."""
        home = copy.copy(self)
        home.tenant = tenant
        return home
