"""Adapters in memory: those used last, within a bound, and always those that speak."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from backend.serving.errors import EngineBusy
from training.model.checkpoint.names import ADAPTER_FILE

if TYPE_CHECKING:
    from training.model.generation.adapter import Adapter

MAX_ADAPTER_BYTES = 2**30
"""Of one engine: hundreds for the embedded model, 14 of rank 16 for the public 1.7B checkpoint."""

SPEAKING_SECONDS = 10.0
"""When to retry if all adapters in memory are in use: about as long as a take lasts."""


@dataclass
class _Held:
    adapter: Adapter
    num_users: int = 0


class AdapterCache:
    """Hands out the adapters of one engine; thread-safe.

    with cache.use(folder) as adapter:
        stream = engine.submit(TakeRequest(..., voice=VoicePrompt(speaker=..., adapter=adapter)))
        ...

    Loading happens in the thread of whoever asks, beside the takes that are running. An adapter in use stays, so
    streams must be read inside the block.
    """

    def __init__(self, load: Callable[[Path], Adapter], max_bytes: int = MAX_ADAPTER_BYTES) -> None:
        """Load nothing yet; `load` reads an adapter's folder."""
        self._load, self._max_bytes = load, max_bytes
        self._held: OrderedDict[Path, _Held] = OrderedDict()
        self._num_loads = 0
        # Reentrant: a stream that is garbage collected releases its adapter in whatever thread that happens.
        self._lock = threading.RLock()
        self._loading = threading.Lock()

    @contextmanager
    def use(self, folder: Path) -> Iterator[Adapter]:
        """The adapter of a folder, for as long as the block lasts.

        Raises:
            EngineBusy: it would have to be loaded, and those in use leave no room.
            CheckpointError: it is damaged, or belongs to another model.
        """
        held = self._take(folder.resolve())
        try:
            yield held.adapter
        finally:
            with self._lock:
                held.num_users -= 1
            self.forget_deleted()

    @property
    def num_bytes(self) -> int:
        """Of all that are in memory."""
        with self._lock:
            return sum(held.adapter.num_bytes for held in self._held.values())

    @property
    def num_loads(self) -> int:
        """How often one was read."""
        return self._num_loads

    def loaded(self) -> list[Path]:
        """Folders of those in memory, the one used longest ago first."""
        with self._lock:
            return list(self._held)

    def forget_deleted(self) -> None:
        """Drop those whose folders are gone, except those in use."""
        with self._lock:
            for folder in [one for one, held in self._held.items() if not held.num_users and not one.is_dir()]:
                del self._held[folder]

    def _take(self, folder: Path) -> _Held:
        if (held := self._find(folder)) is not None:
            return held
        # Those that are loaded can be used meanwhile; loadings wait for each other.
        with self._loading:
            if (held := self._find(folder)) is not None:
                return held
            file = folder / ADAPTER_FILE
            # In memory about as large as on the disk. What is missing is for `load` to name.
            self._make_room(file.stat().st_size if file.is_file() else 0)
            held = _Held(self._load(folder), num_users=1)
            with self._lock:
                self._num_loads += 1
                self._held[folder] = held
            return held

    def _find(self, folder: Path) -> _Held | None:
        with self._lock:
            held = self._held.get(folder)
            if held is not None:
                held.num_users += 1
                self._held.move_to_end(folder)
            return held

    def _make_room(self, num_bytes: int) -> None:
        """Drop those used longest ago; one that is larger than the bound may be there alone."""
        with self._lock:
            for folder in [folder for folder, held in self._held.items() if not held.num_users]:
                if self.num_bytes + num_bytes <= self._max_bytes:
                    break
                del self._held[folder]
            if self._held and self.num_bytes + num_bytes > self._max_bytes:
                raise EngineBusy(
                    f"{len(self._held)} voices with adapters are speaking, and no more fit into memory.",
                    retry_after_seconds=SPEAKING_SECONDS,
                )
