"""Names of tenants. The operator, whose are the page and the command line, has the empty one."""

from __future__ import annotations

import re

from backend.tenants.errors import TenantError

OPERATOR = "operator"
"""What the operator is called where a name is shown or asked for."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


def parse_tenant(name: str) -> str:
    """A tenant by the name that a person typed, in any case. Raises TenantError."""
    lowered = name.strip().lower()
    if lowered == OPERATOR:
        return ""
    if not _NAME.fullmatch(lowered):
        raise TenantError(
            f"{name[:80]!r} cannot be a tenant's name. Use up to 64 letters, digits and . _ @ -, and begin with a "
            "letter or a digit."
        )
    return lowered


def shown_tenant(tenant: str) -> str:
    """What people call it."""
    return tenant or OPERATOR
