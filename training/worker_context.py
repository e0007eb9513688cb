"""A worker's place in the run, and where it reports to."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from typing_extensions import override


class WorkerContext(Protocol):
    """What a worker needs from its launcher (Ray Train or torchrun)."""

    rank: int
    """Of this worker among all."""
    local_rank: int
    """Among those on this machine; selects the GPU."""
    world_size: int
    """Number of workers. Above one, their process group exists already."""

    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        """Record a report. All workers call it, at the same steps, with the same checkpoint.

        Args:
            metrics: see `training.loop.StepReport`.
            checkpoint_folder: a checkpoint that was completed since the last report, under its final name.
        """
        ...

    def tell(self, sentence: str) -> None:
        """Let the person know of something that happened; called on the first worker."""
        ...

    def should_stop(self) -> bool:
        """Whether to stop after this step, with a checkpoint; polled at every step, and any worker may request it."""
        ...


class TorchrunContext(WorkerContext):
    """A worker started by torchrun or on its own: reports go to standard output and to the run's folder."""

    def __init__(self, output: Path) -> None:
        """Read torchrun's environment variables."""
        self.rank = int(os.environ.get("RANK", 0))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        self._log = output / "log.jsonl"
        self._stopping = False

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Within the block, treat SIGTERM and Ctrl-C as requests to stop with a checkpoint."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @override
    def report(self, metrics: Mapping[str, float], checkpoint_folder: Path | None) -> None:
        if self.rank:
            return
        line = {**metrics, "at": time.time(), **({"checkpoint": checkpoint_folder.name} if checkpoint_folder else {})}
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        print(
            f"step {metrics['step']}/{metrics['num_steps']}  talker {metrics['talker_loss']:.3f}  "
            f"code predictor {metrics['code_predictor_loss']:.3f}  {metrics['clips_per_second']:.1f} clips/s"
            + (f"  saved {checkpoint_folder.name}" if checkpoint_folder else ""),
            flush=True,
        )

    @override
    def tell(self, sentence: str) -> None:
        print(sentence, flush=True)

    @override
    def should_stop(self) -> bool:
        return self._stopping

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True
