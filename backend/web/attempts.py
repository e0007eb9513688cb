"""Wrong passwords and keys: each makes the next attempt of the same address, and for the same name, wait longer."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

NUM_FREE = 5
"""Mistakes of an address that cost nothing: people mistype."""

NUM_FREE_FOR_NAME = 20
"""The same for a name, whoever guesses; those who know the password hardly notice what follows."""

MAX_WAIT_SECONDS = 60.0
"""An hour lets an address make about 60 guesses."""

MAX_HOLD_SECONDS = 3.0
"""Longest time an attempt for a name that many guess at is held; it is answered then, so that nobody is locked out."""

FORGET_SECONDS = 900.0
"""Without a further mistake."""

MAX_ENTRIES = 4096
"""Addresses, and names, that are remembered; the one that went wrong longest ago is forgotten first."""


@dataclass
class _Mistakes:
    number: int
    last: float


class _Ledger:
    """Mistakes by key, of a bounded number of keys."""

    def __init__(self, num_free: int, first_seconds: float, max_seconds: float) -> None:
        self._num_free, self._first_seconds, self._max_seconds = num_free, first_seconds, max_seconds
        self._mistakes: OrderedDict[str, _Mistakes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._mistakes)

    def delay(self, key: str, now: float) -> float:
        """How long after the last mistake nothing more is tried."""
        found = self._mistakes.get(key)
        if found is None or now - found.last > FORGET_SECONDS or found.number < self._num_free:
            return 0.0
        return float(min(self._first_seconds * 2.0 ** min(found.number - self._num_free, 32), self._max_seconds))

    def wait(self, key: str, now: float) -> float:
        """How long from now on."""
        return max(0.0, self._mistakes[key].last + delay - now) if (delay := self.delay(key, now)) else 0.0

    def add(self, key: str, now: float) -> None:
        """One more mistake."""
        found = self._mistakes.pop(key, None)
        if found is None or now - found.last > FORGET_SECONDS:
            found = _Mistakes(0, now)
        self._mistakes[key] = _Mistakes(found.number + 1, now)
        while len(self._mistakes) > MAX_ENTRIES:
            self._mistakes.popitem(last=False)

    def take_back(self, key: str) -> None:
        """It was none."""
        if (found := self._mistakes.get(key)) is not None:
            found.number -= 1
            if found.number <= 0:
                del self._mistakes[key]


class AddressAttempts(Protocol):
    """Mistakes of addresses, counted here or elsewhere; see `Attempts`."""

    def wait_seconds(self, address: str) -> float:
        """How long this address has to wait before its next attempt is looked at."""

    def try_begin(self, address: str) -> float:
        """Count a mistake of this address, or return how long it has to wait."""


class Attempts:
    """Counts what goes wrong; may be asked from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._addresses = _Ledger(NUM_FREE, 1.0, MAX_WAIT_SECONDS)
        self._names = _Ledger(NUM_FREE_FOR_NAME, 0.05, MAX_HOLD_SECONDS)

    def wait_seconds(self, address: str) -> float:
        """How long this address has to wait before its next attempt is looked at."""
        with self._lock:
            return self._addresses.wait(_network_of(address), self._clock())

    def hold_seconds(self, name: str) -> float:
        """How long the answer to an attempt for this name is to be held, right or wrong."""
        with self._lock:
            return self._names.delay(name[:100], self._clock())

    def begin(self, address: str) -> None:
        """Count an attempt as a mistake of this address, before it is known: many at the same time count each."""
        with self._lock:
            self._addresses.add(_network_of(address), self._clock())

    def try_begin(self, address: str) -> float:
        """Count a mistake of this address, or return how long it has to wait: of many at the same time each counts."""
        with self._lock:
            network, now = _network_of(address), self._clock()
            if not (wait := self._addresses.wait(network, now)):
                self._addresses.add(network, now)
            return wait

    def begin_name(self, name: str) -> None:
        """The same for a name."""
        with self._lock:
            self._names.add(name[:100], self._clock())

    def succeed(self, address: str, name: str | None = None) -> None:
        """It was right. What went wrong before it is remembered: the next one may be guessing again."""
        with self._lock:
            self._addresses.take_back(_network_of(address))
            if name is not None:
                self._names.take_back(name[:100])

    @property
    def num_entries(self) -> int:
        """Of what is remembered."""
        return len(self._addresses) + len(self._names)


def _network_of(address: str) -> str:
    """What one customer of a provider has: an IPv4 address, or the first half of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
