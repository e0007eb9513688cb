"""What processes that take requests ask the one that has the home, and what it answers; all of it can be pickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from backend.errors import EncoreError

Part = Literal[
    "voices", "voice trash", "takes", "take trash", "signer", "checker", "tenants", "usage", "attempts", "totals"
]

SLOW_METHODS = frozenset({"create_zero_shot", "check", "add", "sign", "sound_of"})
"""They read or write recordings, and keep no quick question waiting."""


@dataclass(frozen=True)
class SentFile:
    """A file that comes along.

    Attributes:
        name: what it is called; recordings are told apart by it.
        content: its bytes.
    """

    name: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which part of what is stored, and of whom.

    Attributes:
        part: of the home.
        tenant: whose; empty for the operator.
        max_voices: that the tenant may have.
    """

    part: Part
    tenant: str = ""
    max_voices: int | None = None


@dataclass(frozen=True, kw_only=True)
class HomeCall:
    """One question: a method of a part with its arguments, among which files are `SentFile`."""

    scope: Scope
    method: str
    # Any: whatever the method takes; `RemoteHome.ask` checks it against the method's own types.
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def is_slow(self) -> bool:
        """Whether it may take longer than a moment."""
        return self.method in SLOW_METHODS


@dataclass(frozen=True, kw_only=True)
class HomeAnswer:
    """What came of it: a value, or an error with its cause, which pickle alone would leave behind."""

    value: Any = None  # Any: as `HomeCall.args`
    error: EncoreError | None = None
    cause: BaseException | None = None

    # Any: as above
    def unwrap(self) -> Any:
        """The value. Raises the error."""
        if self.error is not None:
            raise self.error from self.cause
        return self.value


@dataclass(frozen=True, kw_only=True)
class HomeFacts:
    """What a process that takes requests is told once.

    Attributes:
        can_instruct: whether the model follows instructions.
        started_at: since when it is served.
    """

    can_instruct: bool
    started_at: datetime


Send = Callable[[HomeCall], HomeAnswer]
"""Asks, from a thread that may wait. Raises HomeUnavailable."""
