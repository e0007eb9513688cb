"""Counts votes: how often one side won over another, and whether that may be chance. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from backend.comparisons.comparison import Comparison

Z_95 = 1.959964
"""Of the normal distribution: leaves 2.5 % on each side."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The votes between two sides.

    Attributes:
        first: key of one side.
        second: key of the other.
        first_wins: votes for the first.
        second_wins: votes for the second.
        num_same: votes for no difference, or for a third side.
        num_bad: votes against both.
        num_blind: of all votes, those given without knowing who spoke.
    """

    first: str
    second: str
    first_wins: int
    second_wins: int
    num_same: int
    num_bad: int
    num_blind: int

    @property
    def num_votes(self) -> int:
        """All of them."""
        return self.first_wins + self.second_wins + self.num_same + self.num_bad

    @property
    def num_decided(self) -> int:
        """Votes that preferred one of the two."""
        return self.first_wins + self.second_wins

    @property
    def share(self) -> float | None:
        """Of the decided votes, how many preferred the first; None without any."""
        return self.first_wins / self.num_decided if self.num_decided else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the share."""
        return wilson_interval(self.first_wins, self.num_decided)

    @property
    def leader(self) -> str | None:
        """The side with more votes; None if neither has more."""
        if self.first_wins == self.second_wins:
            return None
        return self.first if self.first_wins > self.second_wins else self.second

    @property
    def is_clear(self) -> bool:
        """Whether the difference is unlikely to be chance."""
        low, high = self.interval
        return self.num_decided > 0 and (low > 0.5 or high < 0.5)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The votes on one side, whoever it was compared with.

    Attributes:
        key: of the side.
        num_won: votes that preferred it.
        num_decided: votes that preferred one of those compared.
    """

    key: str
    num_won: int
    num_decided: int

    @property
    def is_clear(self) -> bool:
        """Whether it was preferred, or passed over, more often than by chance."""
        low, high = wilson_interval(self.num_won, self.num_decided)
        return self.num_decided > 0 and (low > 0.5 or high < 0.5)


def standing(comparisons: Iterable[Comparison], keys: Collection[str]) -> Standing:
    """Count the votes on one side, which may be known by several `keys`: the first names it."""
    decided = [
        comparison.winner.side.key
        for comparison in comparisons
        if comparison.winner is not None and any(take.side.key in keys for take in comparison.takes)
    ]
    return Standing(key=next(iter(keys)), num_won=sum(won in keys for won in decided), num_decided=len(decided))


def preferred(tallies: Sequence[Tally], keys: Iterable[str]) -> str | None:
    """The side that leads against every other one; None while the votes are even."""
    leaders = {key: [one.leader for one in tallies if key in (one.first, one.second)] for key in keys}
    return next((key for key, led in leaders.items() if led and all(leader == key for leader in led)), None)


def wilson_interval(num_wins: int, num_votes: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval for a share; from 0 to 1 without votes.

    Holds for few votes too, unlike the share plus and minus its standard error, which would be certain after one.
    """
    if not num_votes:
        return 0.0, 1.0
    share, square = num_wins / num_votes, z * z
    middle = (share + square / (2 * num_votes)) / (1 + square / num_votes)
    spread = z * math.sqrt(share * (1 - share) / num_votes + square / (4 * num_votes**2)) / (1 + square / num_votes)
    return max(0.0, middle - spread), min(1.0, middle + spread)


def tally(comparisons: Iterable[Comparison], first: str, second: str) -> Tally:
    """Count the votes of all comparisons in which both sides took part."""
    counts = {"first": 0, "second": 0, "same": 0, "bad": 0, "blind": 0}
    for comparison in comparisons:
        keys = {take.side.key for take in comparison.takes}
        if comparison.verdict is None or not {first, second} <= keys:
            continue
        counts["blind"] += comparison.is_blind
        winner = comparison.winner
        if comparison.verdict == "bad":
            counts["bad"] += 1
        elif winner is not None and winner.side.key == first:
            counts["first"] += 1
        elif winner is not None and winner.side.key == second:
            counts["second"] += 1
        else:
            counts["same"] += 1
    return Tally(
        first=first,
        second=second,
        first_wins=counts["first"],
        second_wins=counts["second"],
        num_same=counts["same"],
        num_bad=counts["bad"],
        num_blind=counts["blind"],
    )
