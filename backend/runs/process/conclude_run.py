"""The end of a run: the best checkpoint is selected, exported, and kept as a voice."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from backend.errors import EncoreError
from backend.evaluation.plan import EvaluationPlan
from backend.evaluation.scores import CheckpointScores
from backend.runs.method_table import compare_methods
from backend.runs.planning.launch import LaunchPlan
from backend.runs.process.select_checkpoint import Choice, choose, winner
from backend.runs.report import write_report
from backend.runs.storage.records import CheckpointRecord, RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.registry import Voices
from backend.voices.styles import StyleClip
from backend.voices.voice import Variant, Voice
from training.errors import ResumeError, StorageError, TrainingError
from training.export import FineTunedWeights, export_all, read_weights
from training.job import ADAPTER_FOLDER, FineTuneJob, JobSpeaker
from training.run_checkpoints import list_checkpoints, mark_best, read_checkpoint, set_aside
from training.storage.objects import ObjectStore
from training.stored_checkpoints import put_export
from training.stored_inputs import delete_datasets


def conclude(home: Home, run_id: str, store: ObjectStore | None = None) -> None:
    """Choose, export (and upload), keep as a voice, write the page; the run is done afterwards.

    Raises:
        EncoreError: there is no checkpoint, or it cannot be exported.
    """
    rows, folder = RunTable(home.database), RunFolder.of(home.folder, run_id)
    launch = LaunchPlan.read(folder.launch)
    while True:
        choice = _choose(rows.checkpoints(run_id), folder)
        assert choice.best is not None
        rows.change(run_id, best_checkpoint=choice.best, verdict=choice.verdict)
        mark_best(folder.path, int(choice.best.rpartition("-")[2]))
        try:
            exported = export_best(folder, choice.best)
            break
        except ResumeError as damaged:
            if not (folder.checkpoints / choice.best).is_dir():
                raise
            set_aside(folder.checkpoints / choice.best)
            rows.fail_evaluation(run_id, choice.best, str(damaged))
            rows.add_event(run_id, f"The best checkpoint, {choice.best}, is damaged; the next best takes its place.")
    rows.change(run_id, export_folder=str(folder.export))
    if store is not None:
        put_export(store, run_id, folder.export, lambda said: rows.add_event(run_id, said))
    message = f"The best checkpoint, {choice.best}, is exported."
    if launch.name_voice:
        message = _keep_voices(Voices(home), rows.get(run_id), rows.checkpoints(run_id), folder, exported)
    rows.move(run_id, RunState.DONE, message)
    run = rows.get(run_id)
    # They are needed no more, and deleting a dataset must delete its copy too.
    for copied in folder.datasets(len(run.job.speakers)):
        shutil.rmtree(copied, ignore_errors=True)
    if store is not None:
        _forget_stored_datasets(store, rows, run_id)
    write_report(
        folder.report,
        run,
        rows.metrics(run_id),
        rows.checkpoints(run_id),
        rows.events(run_id),
        folder.path,
        compare_methods(run, rows, home.folder),
        starred=winner(run.best_checkpoint, rows.checkpoints(run_id)),
    )


def _forget_stored_datasets(store: ObjectStore, rows: RunTable, run_id: str) -> None:
    try:
        delete_datasets(store, run_id)
    except StorageError as error:
        rows.add_event(run_id, f"The copy of the dataset in the storage goes when the run is deleted. {error}")


def export_best(folder: RunFolder, name: str) -> dict[Variant, Path]:
    """Write both variants of a checkpoint in the public format and its adapter, in the place of earlier ones.

    The voice is made of the adapter where there is one; whole models are what other programs load.

    Raises:
        EncoreError: the checkpoint cannot be read, or the disk is full.
    """
    shutil.rmtree(folder.export, ignore_errors=True)
    return export_all(read_exportable(folder, name), folder.export)


def read_exportable(folder: RunFolder, name: str) -> FineTunedWeights:
    """A checkpoint's weights as they are to be exported.

    Raises:
        EncoreError: the checkpoint or its base model cannot be read.
    """
    checkpoint = read_checkpoint(folder.checkpoints / name)
    embeddings = torch.tensor(EvaluationPlan.read(folder.evaluation_plan).embeddings, dtype=torch.float32)
    weights = read_weights(checkpoint, embeddings)
    # With the datasets as the user knows them: the run learnt from copies of its own.
    job = weights.job.with_datasets([speaker.dataset for speaker in FineTuneJob.read(folder.job).speakers])
    return replace(weights, job=job)


def _choose(checkpoints: Sequence[CheckpointRecord], folder: RunFolder) -> Choice:
    """The best by its scores; the newest if none could be evaluated."""
    choice = choose(checkpoints)
    if choice.best is not None:
        return choice
    found = list_checkpoints(folder.path)
    if not found:
        raise TrainingError("The run has no checkpoint, so there is nothing to export. Start it again.")
    verdict = "No checkpoint was evaluated, so the last one was taken. Listen to it before you use it."
    return Choice(best=found[-1].folder.name, beats_base=None, verdict=verdict)


def _keep_voices(
    voices: Voices,
    run: RunRecord,
    checkpoints: Sequence[CheckpointRecord],
    folder: RunFolder,
    exported: Mapping[Variant, Path],
) -> str:
    """Make a voice of each speaker of the export; what happened, in a sentence or two."""
    plan = EvaluationPlan.read(folder.evaluation_plan)
    scores = next((point.scores for point in checkpoints if point.name == run.best_checkpoint), None)
    adapter = folder.export / ADAPTER_FOLDER if run.job.lora is not None else None
    kept, lost, problems = [], [], []
    for speaker, own in zip(FineTuneJob.read(folder.job).speakers, plan.speakers, strict=True):
        of_speaker = scores.speakers.get(speaker.voice, scores) if scores is not None else None
        try:
            kept.append(_keep_voice(voices, run, speaker, own, of_speaker, exported, adapter).name)
            if gone := ", ".join(style.name for style in own.styles if style not in _styles_there(own)):
                lost.append(f"{kept[-1]} cannot be told to speak {gone}: the clips are not in the dataset any more.")
        except EncoreError as error:
            # Hours of training are not lost to a name: the export stays, and can be made a voice of later.
            problems.append(error if not plan.more_speakers else f"{speaker.voice}: {error}")
    said = []
    if kept:
        names = ", ".join(kept)
        said.append(
            f"The voice {names} speaks with checkpoint {run.best_checkpoint}."
            if len(kept) == 1
            else f"The voices {names} speak with checkpoint {run.best_checkpoint}."
        )
    said += lost
    said += [f"The best checkpoint is exported, but it could not be kept as a voice: {problem}" for problem in problems]
    return " ".join(said)


def _keep_voice(
    voices: Voices,
    run: RunRecord,
    speaker: JobSpeaker,
    plan: EvaluationPlan,
    scores: CheckpointScores | None,
    exported: Mapping[Variant, Path],
    adapter: Path | None,
) -> Voice:
    """Make a voice of one speaker of the export, with the adapter if there is one. Raises EncoreError."""
    return voices.add_fine_tuned(
        speaker.voice,
        exported if adapter is None else {},
        adapter=adapter,
        consent=run.consents.get(speaker.voice, run.consent),
        model=run.model,
        run_id=run.id,
        reference=plan.reference_clip if plan.reference_clip.is_file() else None,
        transcript=plan.reference_text,
        language=plan.language,
        speaker=speaker.name,
        styles=_styles_there(plan),
        provenance={
            "dataset": speaker.dataset.name if run.consents else run.dataset,
            "dataset_digest": speaker.dataset_digest,
            "checkpoint": run.best_checkpoint,
            "trained": run.job.method_in_words,
            "scores": scores.model_dump(mode="json") if scores is not None else None,
            **({"speakers": [one.voice for one in run.job.speakers]} if run.consents else {}),
        },
    )


def _styles_there(plan: EvaluationPlan) -> list[StyleClip]:
    """The styles whose clips are still in the dataset, which may have been edited since."""
    return [style for style in plan.styles if style.clip is None or style.clip.is_file()]
