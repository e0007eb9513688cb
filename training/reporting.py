"""What happens between the steps of a run: reports, and checkpoints that are written during the next steps."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from training.data.batching import BatchPlan
from training.errors import CheckpointDiskFull
from training.job import FineTuneJob
from training.loop import LoopEvents, StepReport
from training.run_checkpoints import CheckpointKeeper, Progress
from training.worker_context import WorkerContext
from training.workers import Workers

_MAX_FAILURES = 5
"""So often a checkpoint may find a full disk, after it was waited for room each time."""


class Reporting(LoopEvents):
    """Reports to one worker's context, and keeps its checkpoints."""

    def __init__(
        self,
        job: FineTuneJob,
        context: WorkerContext,
        keeper: CheckpointKeeper,
        batches: BatchPlan,
        workers: Workers,
        *,
        base_digest: str | None = None,
    ) -> None:
        """Begin; checkpoints name their base model by `base_digest`, see `Progress`."""
        self._base_digest = base_digest
        self.checkpoint: Path | None = None
        self._num_failed = 0
        self._job, self._context, self._keeper, self._batches, self._workers = job, context, keeper, batches, workers

    @override
    def stop_requested(self) -> bool:
        return self._context.should_stop()

    @override
    def after_step(self, report: StepReport, *, is_stopping: bool) -> None:
        is_end = is_stopping or report.step == report.num_steps
        must_report = is_end or report.step % self._job.report_every == 0
        finished = self.finish_checkpoint() if must_report else None
        if is_end or self._num_failed or self._is_checkpoint_due(report.step):
            # Only one is written at a time.
            finished = self.finish_checkpoint() or finished
            self._start(report)
        if is_end:
            finished = self.finish_checkpoint() or finished
            while self._num_failed:
                self._start(report)
                finished = self.finish_checkpoint() or finished
        if must_report or finished:
            self._context.report(report.metrics(), finished)

    def _is_checkpoint_due(self, step: int) -> bool:
        every = self._job.checkpoint_every
        return step % every == 0 if every is not None else self._batches.ends_epoch(step - 1)

    def _start(self, report: StepReport) -> None:
        self._keeper.start(
            Progress(
                step=report.step,
                num_steps=report.num_steps,
                epoch=report.epoch,
                dataset_digest=self._job.dataset_digest,
                family=self._job.checkpoint_family,
                num_workers=self._workers.size,
                talker_loss=report.talker_loss,
                code_predictor_loss=report.code_predictor_loss,
                base_digest=self._base_digest,
            ),
            self._estimate_bytes(report),
            self._context.tell,
        )

    def _estimate_bytes(self, report: StepReport) -> int:
        """Of a checkpoint: weights and moments, which of what a worker holds are all but the gradients.

        An adapter's is small beside the frozen weights that a worker holds, and is known once one was written.
        """
        if self._job.lora is not None:
            return 0
        num_holders = 1 if self._job.strategy == "ddp" else self._workers.size
        return round(report.state_bytes * num_holders * 3 / 4)

    def finish_checkpoint(self) -> Path | None:
        """Wait for the checkpoint that is being written, if any; one that found the disk full is due again.

        Raises:
            TrainingError: it cannot be written.
        """
        if not self._keeper.is_saving:
            return None
        try:
            self.checkpoint = self._keeper.finish()
        except CheckpointDiskFull:
            self._num_failed += 1
            if self._num_failed > _MAX_FAILURES:
                raise
            return None
        self._num_failed = 0
        return self.checkpoint
