"""Reads dataclasses from JSON, with errors that name the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from training.model.errors import ConfigError


def require_mapping(raw: object, where: str) -> None:
    """Raise ConfigError unless `raw` is a JSON object."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"config.json: {where} must be an object, but is {raw!r}.")


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
    """Turn JSON lists into tuples, and check types and signs.

    Every number in these files is a size, a rate, a count or an id: none is negative, and no size is zero.
    """
    if declared.startswith("tuple"):
        if not isinstance(value, list | tuple) or not all(is_count(entry) and entry > 0 for entry in value):
            raise ConfigError(f"config.json: {name} must be a list of positive whole numbers, but is {value!r}.")
        return tuple(value)
    if declared.startswith("Mapping"):
        of_ids = declared.endswith(", int]")
        if not isinstance(value, Mapping) or (of_ids and not all(is_count(entry) for entry in value.values())):
            raise ConfigError(f"config.json: {name} must map names to {'ids' if of_ids else 'values'}.")
        return value
    if declared == "int" and not (is_count(value) and (value > 0 or name.endswith("_id"))):
        raise ConfigError(f"config.json: {name} must be a positive whole number, but is {value!r}.")
    expected: tuple[type, ...] = {"float": (int, float), "bool": (bool,), "str": (str,)}.get(declared, (object,))
    if not isinstance(value, expected):
        raise ConfigError(f"config.json: {name} must be of type {declared}, but is {value!r}.")
    return value


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
