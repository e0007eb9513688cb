"""Zero-shot, adapters and full fine-tunes of the same clips side by side: what each gains, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backend.evaluation.scores import CheckpointScores
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from training.job import ADAPTER_FOLDER


@dataclass(frozen=True, kw_only=True)
class MethodRow:
    """One way to the voice: the base model without training, or a finished run.

    Attributes:
        run: the run; None for zero-shot.
        scores: of its best checkpoint, or of the base model; None where nothing was measured.
        seconds: that its steps took; None for zero-shot, and where it is not known.
        state_bytes: weights, gradients and optimizer of the fullest worker, as it was measured.
        size_bytes: of what is kept of it, an adapter's weights or a whole model's.
    """

    run: RunRecord | None
    scores: CheckpointScores | None
    seconds: float | None = None
    state_bytes: float | None = None
    size_bytes: int | None = None

    @property
    def likeness(self) -> float | None:
        """To the person, by the verifier where it heard the takes, else by the model's own encoder."""
        if self.scores is None:
            return None
        verified = self.scores.verified_similarity
        return verified if verified is not None else self.scores.speaker_similarity


def same_data(run: RunRecord, runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Finished runs that learnt from the clips that `run` did, on the same base model; itself first if it is done.

    A way that was trained twice is there once, by its newest run.
    """
    found: dict[object, RunRecord] = {}
    for one in (run, *sorted(runs, key=lambda other: -other.created_at)):
        if one.state is RunState.DONE and _learnt_from(one) == _learnt_from(run):
            found.setdefault((one.preset, one.job.lora), one)
    return list(found.values())


def _learnt_from(run: RunRecord) -> tuple[Path, list[str]]:
    """Base model, and the clips of all speakers."""
    return run.job.base_model, sorted(speaker.dataset_digest for speaker in run.job.speakers)


def compare_methods(run: RunRecord, rows: RunTable, home: Path) -> list[MethodRow]:
    """Zero-shot and what each run on the clips of `run` came to; nothing where there is none to compare it with."""
    runs = same_data(run, rows.list())
    if len(runs) < 2:
        return []
    base = next((point for point in rows.checkpoints(runs[0].id) if point.is_base), None)
    zero_shot = MethodRow(run=None, scores=base.scores if base is not None else None)
    return [zero_shot, *(_row(one, rows, RunFolder.of(home, one.id)) for one in runs)]


def _row(run: RunRecord, rows: RunTable, folder: RunFolder) -> MethodRow:
    best = next((point for point in rows.checkpoints(run.id) if point.name == run.best_checkpoint), None)
    measures = [one.measures for one in rows.metrics(run.id)]
    paces = [one["seconds_per_step"] for one in measures if "seconds_per_step" in one]
    return MethodRow(
        run=run,
        scores=best.scores if best is not None else None,
        seconds=run.num_steps * sum(paces) / len(paces) if paces else None,
        state_bytes=max((one["state_bytes"] for one in measures if "state_bytes" in one), default=None),
        size_bytes=_size_of(run, folder),
    )


def _size_of(run: RunRecord, folder: RunFolder) -> int | None:
    """Of the weights in its export; None where that is gone."""
    kept = folder.export / ("custom_voice" if run.job.lora is None else ADAPTER_FOLDER)
    return sum(path.stat().st_size for path in kept.glob("*.safetensors")) or None
