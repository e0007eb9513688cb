"""Root of the product's one exception tree, and the branch the network itself raises.

The root lives in the lowest layer so that every package can raise from the same tree;
`backend/errors.py` grows the other branches and draws the whole tree.
"""

from __future__ import annotations

from typing import Any


class EncoreError(Exception):
    """Base of all errors shown to the user; the message says what happened and what to do about it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes by pickle, which would call the constructor with the message.
        return _restore, (type(self), self.args, self.__dict__)


class ModelError(EncoreError):
    """The model cannot be loaded, or cannot do what was requested."""


class ConfigError(ModelError):
    """A `config.json` lacks a field, or asks for an architecture this network does not have."""


class CheckpointError(ModelError):
    """A checkpoint folder cannot be read: not a checkpoint, pickle, missing or misshapen tensors."""


class DownloadError(ModelError):
    """A hub model could not be fetched: offline, unknown id, interrupted, no space."""


class DownloadCancelled(DownloadError):
    """The user stopped the download; what has arrived is kept for the next attempt."""


class PromptError(ModelError):
    """A request cannot be turned into a prompt: empty text, unknown language or speaker."""


def _restore(kind: type[EncoreError], args: tuple[Any, ...], facts: dict[str, Any]) -> EncoreError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error
