"""Evaluates checkpoints during training: one Ray task at a time, the base model first, then each as it appears."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from backend.cluster.connect import pin_to_this_machine
from backend.errors import EncoreError
from backend.evaluation.evaluate import evaluate, load_scorers, own_errors
from backend.evaluation.plan import EvaluationPlan
from backend.evaluation.scores import EvaluatedTake, OwnErrors, summarize
from backend.provenance.signing import FileSigner
from backend.provenance.statement import SpeechStatement
from backend.runs.planning.launch import LaunchPlan
from backend.runs.process.select_checkpoint import choose
from backend.runs.storage.records import BASE, CheckpointRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.transcription.select_transcriber import load_stored_transcribers
from training.export import export_checkpoint
from training.machine import Machine
from training.model.checkpoint.digest import checkpoint_digest
from training.model.speaker_verifier import load_verifier
from training.model.voice_model import VoiceModel
from training.run_checkpoints import hold, mark_best, read_checkpoint, release

MAX_WAITING = 3
"""Checkpoints that are kept on disk only to be evaluated; a full one of a large model has many gigabytes."""

_logger = logging.getLogger(__name__)


class EvaluationQueue:
    """Knows what is still to be evaluated, and hands it out."""

    def __init__(
        self,
        rows: RunTable,
        run_id: str,
        folder: RunFolder,
        launch: LaunchPlan,
        signer: FileSigner | None = None,
        *,
        is_pinned: bool = False,
    ) -> None:
        """Read the plan; what an earlier attempt had begun to evaluate is evaluated again.

        With a signer every take is signed that is taken in. What is pinned is evaluated on this machine, for others
        may not see the run's folder.

        Raises:
            EvaluationError: there is no plan.
        """
        self._rows, self._run_id, self._folder, self._launch = rows, run_id, folder, launch
        self._signer, self._is_pinned = signer, is_pinned
        self._current: tuple[CheckpointRecord, Any] | None = None
        self._plan: EvaluationPlan | None = None
        if not launch.evaluate:
            return
        self._plan = EvaluationPlan.read(folder.evaluation_plan)
        rows.add_checkpoint(run_id, BASE, 0)
        for record in rows.checkpoints(run_id):
            if record.state in ("evaluating", "failed"):
                rows.mark_evaluating(run_id, record.name, waiting=True)

    def advance(self) -> bool:
        """Take in what is finished and hand out what is next; false when nothing is left to wait for."""
        if self._plan is None:
            return False
        waiting = self.waiting()
        if self._current is not None:
            if not self._take_in(*self._current):
                return True
            self._current = None
        if waiting:
            self._hand_out(waiting[0], self._plan)
        return bool(waiting)

    def waiting(self) -> Sequence[CheckpointRecord]:
        """What is to be evaluated, the base model first; held on disk, but only the newest few."""
        waiting = [record for record in self._rows.checkpoints(self._run_id) if record.state == "waiting"]
        base = [record for record in waiting if record.is_base]
        own = [record for record in waiting if not record.is_base]
        for late in own[:-MAX_WAITING]:
            self._skip(late)
        return [*base, *(record for record in own[-MAX_WAITING:] if self._hold(record))]

    def _skip(self, record: CheckpointRecord) -> None:
        release(self._place(record))
        problem = "Newer checkpoints came before it could be evaluated."
        self._rows.fail_evaluation(self._run_id, record.name, problem)

    def _hold(self, record: CheckpointRecord) -> bool:
        """Keep a checkpoint until it is evaluated; false if it is gone."""
        try:
            hold(self._place(record))
        except FileNotFoundError:
            self._skip(record)
            return False
        return True

    def _hand_out(self, record: CheckpointRecord, plan: EvaluationPlan) -> None:
        import ray  # noqa: PLC0415 - only where a supervisor has started it

        # No processor is set aside: training has them all on a laptop, and evaluation may use what it leaves.
        options: dict[str, Any] = {"num_cpus": 0, "max_retries": 1}
        if self._is_pinned:
            options["scheduling_strategy"] = pin_to_this_machine(strictly=True)
        spare_gpus = ray.available_resources().get("GPU", 0)  # type: ignore[no-untyped-call]
        if self._launch.use_gpu and spare_gpus >= 1 and not (self._is_pinned and Machine.here().num_gpus == 0):
            options["num_gpus"] = 1
        place = None if record.is_base else str(self._place(record))
        task = ray.remote(**options)(evaluate_checkpoint).remote(
            plan.model_dump(mode="json"), str(self._folder.path), record.name, place, self._known_errors()
        )
        self._rows.mark_evaluating(self._run_id, record.name)
        self._current = record, task

    def _take_in(self, record: CheckpointRecord, task: Any) -> bool:
        """Record a finished evaluation; false if it is not finished."""
        import ray  # noqa: PLC0415

        if not ray.wait([task], timeout=0)[0]:
            return False
        try:
            raw_takes, own_errors = ray.get(task)
            takes = [EvaluatedTake.model_validate(take) for take in raw_takes]
            self._sign(takes)
            self._rows.add_evaluation(self._run_id, record.name, takes, summarize(takes, own_errors))
            self._keep_best()
        except Exception as error:
            # One checkpoint that cannot be evaluated must not end the run.
            _logger.exception("evaluating %s failed", record.name)
            cause = error.__cause__ or getattr(error, "cause", None)
            problem = str(cause) if isinstance(cause, EncoreError) else "The evaluation failed; the run's log says why."
            self._rows.fail_evaluation(self._run_id, record.name, problem)
        if not record.is_base:
            release(self._place(record))
        return True

    def _sign(self, takes: Sequence[EvaluatedTake]) -> None:
        """Here, not where they were spoken: only this machine has the key."""
        if self._signer is None:
            return
        run = self._rows.get(self._run_id)
        for take in takes:
            if take.statement is not None:
                consent = run.consents.get(take.speaker, run.consent)
                agreed = {} if consent is None else {"consent": consent.statement, "consent_sha256": consent.digest}
                said = take.statement.model_copy(update=agreed)
                self._signer.sign_file(self._folder.path / take.file, "wav", said)

    def _known_errors(self) -> dict[str, dict[str, float]]:
        """Of listeners that have heard a speaker's own recordings in this run: they need not be heard again."""
        known: dict[str, dict[str, float]] = {}
        scores = [record.scores for record in self._rows.checkpoints(self._run_id) if record.scores is not None]
        for speaker, own in (one for each in scores for one in (each.speakers or {"": each}).items()):
            known.setdefault(speaker, {}).update(
                {
                    errors.listener: errors.own_character_error
                    for errors in own.listeners
                    if errors.listener is not None and errors.own_character_error is not None
                }
            )
        return known

    def _keep_best(self) -> None:
        best = choose(self._rows.checkpoints(self._run_id)).best
        if best is not None:
            mark_best(self._folder.path, int(best.rpartition("-")[2]))

    def _place(self, record: CheckpointRecord) -> Path:
        return self._folder.checkpoints / record.name


def evaluate_checkpoint(
    raw_plan: dict[str, Any], run_folder: str, name: str, checkpoint: str | None, known_errors: OwnErrors
) -> tuple[list[dict[str, Any]], OwnErrors]:
    """The Ray task: speak and measure, perhaps on another machine.

    Returns the takes, and what each listener gets wrong in the speakers' own recordings.

    Args:
        raw_plan: a `EvaluationPlan`.
        run_folder: of the run.
        name: of the checkpoint; names the folder of its takes.
        checkpoint: its folder; None for the base model.
        known_errors: of listeners that have heard the speakers' recordings before.

    Raises:
        EncoreError: it cannot be loaded, or cannot speak.
    """
    logging.basicConfig(level=logging.INFO)
    # The processors are for the training that runs at the same time.
    torch.set_num_threads(1)
    plan, folder = EvaluationPlan.model_validate(raw_plan), RunFolder(Path(run_folder))
    scorers = load_scorers(plan, load_stored_transcribers(), load_verifier())
    errors = own_errors(plan, scorers.transcribers, known_errors)
    if checkpoint is None:
        model = VoiceModel.load(plan.base_model)
        said = SpeechStatement(checkpoint=checkpoint_digest(plan.base_model), voice="zero-shot")
        takes = evaluate(model, plan, scorers, folder.takes / name, statement=said, is_zero_shot=True)
        return _as_json(takes), errors
    exported = folder.evaluating / name
    shutil.rmtree(exported, ignore_errors=True)
    try:
        embeddings = torch.tensor(plan.embeddings, dtype=torch.float32)
        export_checkpoint(read_checkpoint(Path(checkpoint)), embeddings, exported, "base")
        model = VoiceModel.load(exported)
        said = SpeechStatement(checkpoint=checkpoint_digest(exported), voice="fine-tuned")
        takes = evaluate(model, plan, scorers, folder.takes / name, statement=said)
        return _as_json(takes), errors
    finally:
        shutil.rmtree(exported, ignore_errors=True)


def _as_json(takes: Sequence[EvaluatedTake]) -> list[dict[str, Any]]:
    return [take.model_dump(mode="json") for take in takes]
