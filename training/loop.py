"""The training loop: steps, their losses and their speed, independent of strategies, files and Ray.

What happens in a step, and where:

    which clips it trains on           training/data/batching.py        BatchPlan.step
    examples and their tensors         training/data/training_set.py, example.py, mishearing.py
    forward pass and both losses       training/loss.py                 SpeechLoss
    backward pass, update              training/strategies/*.py         Learner (torch_learner.py, zero.py)
    losses over all workers            here                             StepTotals
    report, checkpoint, stop           training/reporting.py            Reporting, an implementation of LoopEvents
    start-up, resume, export           training/worker.py               run_worker
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Protocol, Self

from training.data.batching import BatchPlan, MicroBatch, StepPlan, generator_of
from training.errors import AgreedError
from training.job import FineTuneJob
from training.strategies.learner import Learner
from training.workers import Workers


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """One step over all workers, or the newest of several with the speed of them all.

    Attributes:
        step: steps done since the start of the run, including this one.
        num_steps: of the whole run.
        epoch: counted from 0.
        talker_loss: mean over the step's labels, in nats.
        code_predictor_loss: the same.
        gradient_norm: before clipping.
        learning_rate: of this step.
        clips_per_second: over all workers.
        frames_per_second: frames trained on, over all workers.
        seconds_per_step: wall time.
        memory_bytes: the highest peak of any worker so far.
        worker_bytes: the peak of each worker, by rank.
        state_bytes: weights, gradients and optimizer of the worker that holds most; 0 until the second step, when the
            optimizer has its state.
    """

    step: int
    num_steps: int
    epoch: int
    talker_loss: float
    code_predictor_loss: float
    gradient_norm: float
    learning_rate: float
    clips_per_second: float
    frames_per_second: float
    seconds_per_step: float
    memory_bytes: float
    worker_bytes: tuple[float, ...]
    state_bytes: float

    def metrics(self) -> dict[str, float]:
        """The report as numbers by name, to be logged."""
        numbers = asdict(self)
        for rank, size in enumerate(numbers.pop("worker_bytes")):
            numbers[f"worker_{rank}_bytes"] = size
        return numbers


class LoopEvents(Protocol):
    """Callbacks between steps, called on every worker at the same steps."""

    def stop_requested(self) -> bool:
        """Whether this worker was asked to stop; if any was, all stop after the step."""
        ...

    def after_step(self, report: StepReport, *, is_stopping: bool) -> None:
        """Called after a step: report it, start or finish a checkpoint."""
        ...


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """What the workers contribute to a step's report.

    Attributes:
        talker_loss: mean over the labels of all workers.
        code_predictor_loss: the same.
        stops: whether any worker was asked to stop.
        worker_bytes: peak memory of each worker, by rank.
        state_bytes: of the worker that holds most.
    """

    talker_loss: float
    code_predictor_loss: float
    stops: bool
    worker_bytes: tuple[float, ...]
    state_bytes: float

    @classmethod
    def gather(
        cls, workers: Workers, loss_sums: tuple[float, float], *, stop_requested: bool, state_bytes: int
    ) -> Self:
        """Combine this worker's numbers with the others' in a single all-reduce."""
        peaks, states = [0.0] * workers.size, [0.0] * workers.size
        peaks[workers.rank], states[workers.rank] = float(workers.peak_bytes()), float(state_bytes)
        talker, code_predictor, stops, *sizes = workers.total([*loss_sums, float(stop_requested), *peaks, *states])
        return cls(
            talker_loss=talker,
            code_predictor_loss=code_predictor,
            stops=stops > 0,
            worker_bytes=tuple(sizes[: workers.size]),
            state_bytes=max(sizes[workers.size :]),
        )


@dataclass
class _Rate:
    """Speed since the last report."""

    began: float
    num_steps: int = 0
    num_clips: int = 0
    num_frames: int = 0

    def add(self, plan: StepPlan) -> float:
        """Count a step; returns the seconds since the last report."""
        self.num_steps += 1
        self.num_clips += plan.num_clips
        self.num_frames += plan.num_frames
        return max(time.perf_counter() - self.began, 1e-9)


def learning_rate_of(job: FineTuneJob, step: int, num_steps: int) -> float:
    """Linear warm-up, then half a cosine down to the final share; `step` counts from 0."""
    num_warmup = min(num_steps - 1, math.ceil(job.warmup_ratio * num_steps))
    if step < num_warmup:
        return job.learning_rate * (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)
    final = job.learning_rate * job.min_lr_ratio
    return final + (job.learning_rate - final) * (1 + math.cos(math.pi * progress)) / 2


def train(
    learner: Learner, batches: BatchPlan, job: FineTuneJob, workers: Workers, events: LoopEvents, *, first_step: int = 0
) -> int:
    """Do the steps from `first_step` on; returns the number of steps the run has done by then.

    Raises:
        AgreedError: a loss became NaN or infinite.
    """
    rate, own_state = _Rate(time.perf_counter()), 0
    for step in range(first_step, batches.num_steps):
        plan = batches.step(step)
        learning_rate = learning_rate_of(job, step, batches.num_steps)
        loss_sums = _accumulate(learner, batches, plan, job, workers)
        if step == first_step + 1:
            own_state = learner.state_bytes().total
        norm = learner.step(learning_rate, job.max_gradient_norm)
        totals = StepTotals.gather(workers, loss_sums, stop_requested=events.stop_requested(), state_bytes=own_state)
        loss = totals.talker_loss + totals.code_predictor_loss
        if not math.isfinite(loss + norm):
            raise AgreedError(
                f"The loss became {loss} at step {step + 1}: training diverged. "
                "Lower the learning rate, or go back to an earlier checkpoint."
            )
        seconds = rate.add(plan)
        report = StepReport(
            step=step + 1,
            num_steps=batches.num_steps,
            epoch=plan.epoch,
            talker_loss=totals.talker_loss,
            code_predictor_loss=totals.code_predictor_loss,
            gradient_norm=norm,
            learning_rate=learning_rate,
            clips_per_second=rate.num_clips / seconds,
            frames_per_second=rate.num_frames / seconds,
            seconds_per_step=seconds / rate.num_steps,
            memory_bytes=max(totals.worker_bytes),
            worker_bytes=totals.worker_bytes,
            state_bytes=totals.state_bytes,
        )
        events.after_step(report, is_stopping=totals.stops)
        if totals.stops:
            return step + 1
        if report.step % job.report_every == 0:
            rate = _Rate(time.perf_counter())
    return max(first_step, batches.num_steps)


def _accumulate(
    learner: Learner, batches: BatchPlan, plan: StepPlan, job: FineTuneJob, workers: Workers
) -> tuple[float, float]:
    """This worker's part of a step's gradients, and of its two mean losses."""
    mine = plan.share_of(workers.rank, workers.size)
    talker_sum = code_sum = 0.0
    for place, micro_batch in enumerate(mine, start=1):
        talker, code_predictor = _backward(learner, batches, plan, job, micro_batch, is_last=place == len(mine))
        talker_sum += talker
        code_sum += code_predictor
    return talker_sum, code_sum


def _backward(
    learner: Learner, batches: BatchPlan, plan: StepPlan, job: FineTuneJob, micro_batch: MicroBatch, *, is_last: bool
) -> tuple[float, float]:
    """Add one micro-batch's gradients, weighted by its share of the labels of the whole step over all workers."""
    batch = batches.collate(micro_batch).to(learner.device)
    losses = learner.losses(batch, generator_of(micro_batch), is_last=is_last)
    # A clip's labels are its frames and the end of speech, so the totals are known without communication.
    talker_share = losses.num_talker_labels / (plan.num_frames + plan.num_clips)
    num_residual_codebooks = batch.inputs.residual_codes.shape[-1]
    code_share = losses.num_code_labels / (plan.num_frames * num_residual_codebooks)
    talker = losses.talker * talker_share * micro_batch.weight
    code_predictor = losses.code_predictor * code_share * micro_batch.weight
    learner.backward(talker + job.code_predictor_weight * code_predictor)
    return float(talker.detach()), float(code_predictor.detach())
