"""The home as the tenant whom a command names sees it."""

from __future__ import annotations

import argparse

from backend.settings import Settings
from backend.store.home import Home
from backend.tenants.keys import ApiKeys
from backend.tenants.names import parse_tenant


def home_of(arguments: argparse.Namespace, settings: Settings) -> Home:
    """The home with the things of `--tenant`, or with the operator's own.

    Raises:
        TenantError: there is no such tenant.
        StoreError: the home cannot be opened.
    """
    home = Home(settings.home_folder)
    if arguments.tenant is None:
        return home
    return home.of_tenant(ApiKeys(home.database).require_tenant(parse_tenant(arguments.tenant)))
