"""The training loop that all stages share, with its log, saved state and end."""

from __future__ import annotations

import math
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn

from training.pretrain.errors import PretrainError
from training.pretrain.run.stage_job import StageJob
from training.pretrain.run.training_log import TrainingLog
from training.pretrain.run.training_state import has_state, load_state, read_seconds, save_state


class StopRequest:
    """Turns SIGTERM and Ctrl-C into a request to stop, which the training loop follows after saving its state."""

    def __init__(self) -> None:
        self.was_asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.was_asked = True


class TrainingRun(ABC):
    """One run of a stage, from its first step or from its saved state.

    A stage sets networks and optimizers, then calls `open`.
    """

    networks: Mapping[str, nn.Module]
    """All networks to save, by name."""
    optimizers: Mapping[str, torch.optim.Optimizer]

    def __init__(
        self,
        job: StageJob,
        folder: Path,
        *,
        device: torch.device,
        report: Callable[[str], None],
    ) -> None:
        self.step = 0
        self._seconds_before = 0.0
        self._began: float | None = None
        self._budget_seconds: float | None = None
        self.folder = folder
        self.device = device
        self.report = report
        self._recipe = job
        self._corpus_size = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.log = TrainingLog(folder, job.num_steps, report)

    @abstractmethod
    def train_step(self) -> dict[str, float]:
        """One update; returns its losses."""

    @abstractmethod
    def validate(self) -> Mapping[str, float]:
        """Measurements on held-out speech."""

    @abstractmethod
    def read_start(self, start: Path) -> None:
        """Begin with the weights of another run or of a checkpoint."""

    def open(self, start: Path | None, *, corpus_size: int) -> None:
        """Continue the run in the folder, or begin one; `corpus_size` is the number of utterances it draws from.

        Raises:
            PretrainError: the run in the folder has another recipe, or `start` does not fit.
        """
        self._corpus_size = corpus_size
        if has_state(self.folder):
            self.step, size_then = load_state(self.folder, self._recipe, self.networks, self.optimizers)
            self._seconds_before = read_seconds(self.folder)
            self.report(f"continuing after step {self.step}")
            if size_then != corpus_size:
                self.report(f"the corpus has {corpus_size} utterances now, not {size_then}: other batches from here")
        elif start is not None:
            self.read_start(start)
            self.report(f"starting from the weights in {start}")
        self.log.forget_after(self.step)

    def run(
        self, *, save_every_seconds: float, should_stop: Callable[[], bool], budget_seconds: float | None = None
    ) -> bool:
        """Train to the last step; returns False if `should_stop` ended it earlier, with the state saved.

        With a budget, the run ends once it has trained for that time (including earlier sessions), and its schedules
        follow the time if that is further than the steps.

        Raises:
            PretrainError: a loss became NaN or infinite; the last saved state is kept.
        """
        job, saved = self._recipe, time.monotonic()
        self._began, self._budget_seconds = saved, budget_seconds
        place = self.place
        # Read once per step: if time ended the loop after `is_last` was decided, the last state would not be saved.
        while place < job.num_steps:
            self.log.begin_step()
            self.log.add(self.train_step())
            self.step += 1
            place_before, place = place, self.place
            is_last = place >= job.num_steps
            # Stop and save only at log lines, so that a resumed run's lines are means over the same steps.
            if self.step % job.log_every and not is_last:
                continue
            self.log.write(self.step, learning_rate=job.learning_rate_ratio(place_before))
            if self.step % job.validate_every == 0 or is_last:
                self.log.write_validation(self.step, self.validate())
            stops = should_stop() and not is_last
            if is_last or stops or time.monotonic() - saved >= save_every_seconds:
                self.save()
                saved = time.monotonic()
            if stops:
                return False
        return True

    @property
    def place(self) -> int:
        """The step of the recipe that the run has reached: its own, or a later one if time is short."""
        if self._budget_seconds is None:
            return self.step
        return max(self.step, int(self._recipe.num_steps * self._seconds() / self._budget_seconds))

    def _seconds(self) -> float:
        """Duration of the run, with earlier sessions."""
        return self._seconds_before + (0.0 if self._began is None else time.monotonic() - self._began)

    def save(self) -> None:
        """Save the state of the run."""
        size, seconds = self._corpus_size, self._seconds()
        save_state(
            self.folder, self._recipe, self.step, self.networks, self.optimizers, corpus_size=size, seconds=seconds
        )

    def descend(self, network: nn.Module, loss: Tensor, optimizers: Mapping[str, torch.optim.Optimizer]) -> Tensor:
        """One step of a network's optimizers; returns the gradient's norm before clipping."""
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), self._recipe.max_gradient_norm)
        share = self._recipe.learning_rate_ratio(self.place)
        for optimizer in optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = optimizer.defaults["lr"] * share
            optimizer.step()
        return norm

    def read(self, losses: Mapping[str, Tensor]) -> dict[str, float]:
        """Fetch the losses of a step from the device at once.

        Raises:
            PretrainError: one of them is NaN or infinite.
        """
        values = torch.stack([loss.detach().float() for loss in losses.values()]).tolist()
        if not all(map(math.isfinite, values)):
            found = ", ".join(f"{name} {value}" for name, value in zip(losses, values, strict=True))
            raise PretrainError(f"Training diverged at step {self.step} ({found}). Lower the learning rate.")
        return dict(zip(losses, values, strict=True))


def train_until_stopped(run: TrainingRun, *, save_every_seconds: float, minutes: float | None) -> bool:
    """Train to the end, or until SIGTERM or Ctrl-C, after which the state is saved; returns whether it is the end.

    With `minutes`, the run ends after that time even if steps are left.
    """
    stop = StopRequest()
    with stop:
        finished = run.run(
            save_every_seconds=save_every_seconds,
            should_stop=lambda: stop.was_asked,
            budget_seconds=None if minutes is None else 60 * minutes,
        )
    if not finished:
        run.report(f"stopped after step {run.step}; the same command continues")
    return finished
