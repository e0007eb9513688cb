"""Fields that had other names in earlier versions: what was saved with those still opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_current_names(raw: Any, former: Mapping[str, str]) -> Any:  # Any: whatever pydantic is given to validate
    """`raw` with its former field names replaced, for a validator that runs before all others.

    Args:
        raw: what is about to be validated; anything but a mapping is returned as it is.
        former: former name -> current name. Where both are given, the former one is left, to be refused.
    """
    if not isinstance(raw, Mapping):
        return raw
    return {former.get(name, name) if former.get(name) not in raw else name: value for name, value in raw.items()}
