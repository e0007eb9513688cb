"""Fields that had other names in earlier versions, whose files can still be opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_current_names(raw: Any, former: Mapping[str, str]) -> Any:  # Any: pydantic's input, of any type
    """Replace former field names in `raw`; for a pydantic validator in mode "before".

    Args:
        raw: the input to validate; anything but a mapping is returned unchanged.
        former: former name -> current name. If both are present, the former one is kept, and validation refuses it.
    """
    if not isinstance(raw, Mapping):
        return raw
    return {former.get(name, name) if former.get(name) not in raw else name: value for name, value in raw.items()}
