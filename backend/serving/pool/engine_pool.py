"""Engines by checkpoint folder: a base model and a few fine-tuned voices, loaded when they are needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backend.serving.engine.engine import Engine
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.errors import EngineBusy, EngineClosed
from backend.serving.memory import MemoryUse, added

MAX_ENGINES = 3
"""Checkpoints held at once: a base model and two voices to compare it with."""

LOADING_SECONDS = 30.0
"""When to retry if all engines are in use: about as long as a take and a loading last."""


@dataclass
class _Held:
    engine: Engine
    num_users: int = 0


class EnginePool:
    """Hands out engines, loading one at a time and unloading the one used longest ago; thread-safe.

    with pool.use(folder) as engine:
        stream = AudioStream.of_engine(engine, request, streaming=True)
        ...

    An engine in use is never unloaded, so streams must be read inside the block. A broken engine is replaced by a
    fresh one.
    """

    def __init__(self, load: Callable[[Path], Engine] = Engine.load, *, max_engines: int = MAX_ENGINES) -> None:
        """Load nothing yet; `load` makes an engine of a checkpoint folder."""
        self._load, self._max_engines = load, max_engines
        self._held: OrderedDict[Path, _Held] = OrderedDict()
        # Reentrant: a stream that is garbage collected releases its engine in whatever thread that happens.
        self._lock = threading.RLock()
        self._loading = threading.Lock()
        self._is_closed = self._is_retired = False

    @contextmanager
    def use(self, folder: Path) -> Iterator[Engine]:
        """The engine of a checkpoint folder, for as long as the block lasts.

        Raises:
            EngineBusy: it would have to be loaded, and all that are loaded are in use.
            EngineClosed: after `close`.
            EncoreError: the folder cannot be loaded.
        """
        held = self._take(folder.resolve())
        try:
            yield held.engine
        finally:
            with self._lock:
                held.num_users -= 1
            # The voice, or another one, may have been deleted while it spoke.
            self.unload_deleted()
            if self._is_retired:
                self.retire()

    def loaded(self) -> list[Path]:
        """Folders held, the one used longest ago first."""
        with self._lock:
            return list(self._held)

    def statistics(self) -> dict[Path, EngineStatistics]:
        """Counts of every engine that is loaded."""
        with self._lock:
            held = dict(self._held)
        return {folder: one.engine.statistics() for folder, one in held.items()}

    def num_bytes(self) -> MemoryUse:
        """What the engines that are loaded hold, by device and owner."""
        with self._lock:
            engines = [held.engine for held in self._held.values()]
        return added([(engine.model.device.type, engine.num_bytes()) for engine in engines])

    @property
    def is_healthy(self) -> bool:
        """False once the pool is closed or an engine that is loaded is broken."""
        with self._lock:
            return not self._is_closed and all(held.engine.is_healthy for held in self._held.values())

    def unload(self, folder: Path) -> bool:
        """Close the engine of a folder that is to be deleted or has changed; false when it is in use and stays."""
        with self._lock:
            held = self._held.get(folder.resolve())
            if held is None:
                return True
            if held.num_users:
                return False
            del self._held[folder.resolve()]
        held.engine.close()
        return True

    def unload_deleted(self) -> None:
        """Close the engines whose folders are gone, and drop such adapters, except those in use."""
        for folder in self.loaded():
            if not folder.is_dir():
                self.unload(folder)
        with self._lock:
            engines = [held.engine for held in self._held.values()]
        for engine in engines:
            engine.adapters.forget_deleted()

    def retire(self) -> None:
        """Close each engine as soon as it is not in use, now and later."""
        self._is_retired = True
        for folder in self.loaded():
            self.unload(folder)

    def close(self) -> None:
        """Close all engines, in use or not; nothing can be loaded afterwards."""
        with self._lock:
            self._is_closed = True
            engines = [held.engine for held in self._held.values()]
            self._held.clear()
        for engine in engines:
            engine.close()

    def _take(self, folder: Path) -> _Held:
        if (held := self._find(folder)) is not None:
            return held
        # Engines that are loaded can be used meanwhile; loadings wait for each other.
        with self._loading:
            if (held := self._find(folder)) is not None:
                return held
            self._make_room()
            held = _Held(self._load(folder), num_users=1)
            with self._lock:
                if not self._is_closed:
                    self._held[folder] = held
                    return held
        held.engine.close()
        raise EngineClosed

    def _find(self, folder: Path) -> _Held | None:
        """The healthy engine of a folder, counted as used; None if it is not loaded."""
        with self._lock:
            if self._is_closed:
                raise EngineClosed
            held = self._held.get(folder)
            if held is None:
                return None
            if held.engine.is_healthy:
                held.num_users += 1
                self._held.move_to_end(folder)
                return held
            del self._held[folder]
        held.engine.close()
        return None

    def _make_room(self) -> None:
        """Unload before loading: two checkpoints may fit into memory where three do not."""
        with self._lock:
            unloaded = []
            for folder in [folder for folder, held in self._held.items() if not held.num_users]:
                if len(self._held) < self._max_engines:
                    break
                unloaded.append(self._held.pop(folder))
            num_held = len(self._held)
        for held in unloaded:
            held.engine.close()
        if num_held >= self._max_engines:
            raise EngineBusy(
                f"{num_held} voices with their own weights are speaking, and no more fit into memory.",
                retry_after_seconds=LOADING_SECONDS,
            )
