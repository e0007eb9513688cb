"""Reads dataclasses from JSON, with errors that name the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from training.model.config_ranges import MAX_LIST_LENGTH, RANGES
from training.model.errors import ConfigError

_MAX_SHOWN_CHARACTERS = 60


def require_mapping(raw: object, where: str) -> None:
    """Raise ConfigError unless `raw` is a JSON object."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"config.json: {where} must be an object, but is {_shown(raw)}.")


class FromJson:
    """Reads a dataclass from a JSON object, ignoring unknown fields."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], *, where: str) -> Self:
        """Build from the JSON object `raw`; `where` names it in errors.

        Raises:
            ConfigError: a field without a default is missing or has the wrong type.
        """
        require_mapping(raw, where)
        values: dict[str, Any] = {}
        for spec in dataclasses.fields(cls):  # type: ignore[arg-type]  # every subclass is a dataclass
            if spec.name in raw and raw[spec.name] is not None:
                values[spec.name] = as_declared(raw[spec.name], str(spec.type), f"{where}.{spec.name}")
            elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
                raise ConfigError(f"config.json: {where}.{spec.name} is missing.")
        return cls(**values)


def as_declared(value: Any, declared: str, name: str) -> Any:
    """Turn JSON lists into tuples, and check types and ranges; `name` may have the names of its sections before it.

    Raises:
        ConfigError: it is of another type, or a number that no model has.
    """
    if declared.startswith("tuple"):
        if not isinstance(value, list | tuple) or not value or not all(is_count(entry) for entry in value):
            raise ConfigError(f"config.json: {name} must be a list of positive whole numbers, but is {_shown(value)}.")
        if len(value) > MAX_LIST_LENGTH:
            raise ConfigError(f"config.json: {name} lists {len(value)} numbers, more than {MAX_LIST_LENGTH}.")
        for entry in value:
            require_range(entry, name)
        return tuple(value)
    if declared.startswith("Mapping"):
        of_ids = declared.endswith(", int]")
        if not isinstance(value, Mapping) or (of_ids and not all(is_count(entry) for entry in value.values())):
            raise ConfigError(f"config.json: {name} must map names to {'ids' if of_ids else 'values'}.")
        return value
    if declared == "int" and not is_count(value):
        raise ConfigError(f"config.json: {name} must be a positive whole number, but is {_shown(value)}.")
    expected: tuple[type, ...] = {"float": (int, float), "bool": (bool,), "str": (str,)}.get(declared, (object,))
    if not isinstance(value, expected) or (declared == "float" and isinstance(value, bool)):
        raise ConfigError(f"config.json: {name} must be of type {declared}, but is {_shown(value)}.")
    # Ids are held to the sizes of their tables, which are not known here.
    if isinstance(value, int | float) and declared in ("int", "float") and not name.endswith("_id"):
        require_range(value, name)
    return value


def require_range(value: float, name: str) -> None:
    """Refuse a number that no model has, and NaN. Raises ConfigError."""
    lowest, highest = RANGES[name.rpartition(".")[2]]
    if not lowest <= value <= highest:
        raise ConfigError(f"config.json: {name} is {_shown(value)}; models have from {lowest:g} to {highest:g}.")


def is_count(value: Any) -> bool:
    """Whether a JSON value is a non-negative whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def require_object(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The JSON object called `name`. Raises ConfigError if it is missing or of another type."""
    if not isinstance(raw.get(name), Mapping):
        raise ConfigError(f"config.json: {name} is missing.")
    found: Mapping[str, Any] = raw[name]
    return found


def require_token_id(raw: Mapping[str, Any], name: str) -> int:
    """The token id called `name`. Raises ConfigError if it is missing or of another type."""
    if not is_count(raw.get(name)):
        raise ConfigError(f"config.json: {name} is missing or not a token id.")
    return int(raw[name])


def with_head_dim(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the head size as width / heads if the file omits it, as the reference does."""
    if not isinstance(raw, Mapping) or raw.get("head_dim") is not None:
        return raw
    if not all(is_count(raw.get(name)) and raw[name] > 0 for name in ("hidden_size", "num_attention_heads")):
        return raw
    return {**raw, "head_dim": raw["hidden_size"] // raw["num_attention_heads"]}


def _shown(value: object) -> str:
    """A value in a message of one line; a stranger's number may have thousands of digits."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # Python writes no whole number of more than 4300 digits, nothing endless
        return "too long to be shown"
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
