"""The files that a run begins with, its own copy of what it learns from among them."""

from __future__ import annotations

import shutil

from backend.runs.errors import RunError, RunNotPossible, RunStateError
from backend.runs.planning.prepare import Prepared
from backend.runs.storage.control import Control
from backend.runs.storage.run_folder import RunFolder
from training.data.code_rows import CARD_FILE, ROWS_FILE, read_card
from training.job import FineTuneJob


def store_run(prepared: Prepared, folder: RunFolder) -> None:
    """Write everything that a supervisor needs; nothing is left where that cannot be.

    Raises:
        RunStateError: it was started already.
        RunNotPossible: the dataset is not any more what the run was planned with.
        RunError: the disk is full.
    """
    if folder.job.exists():
        raise RunStateError(f"Run {prepared.run_id} was started already. Prepare another one.")
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        _keep_rows(prepared.job, folder)
        folder.launch.write_text(prepared.launch.model_dump_json(indent=1) + "\n", encoding="utf-8")
        folder.judging_plan.write_text(prepared.judging.model_dump_json(), encoding="utf-8")
        Control(attempt=0).write(folder.control)
        prepared.job.write(folder.job)
    except OSError as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise RunError(f"The run cannot be stored: {error.strerror}. Free some space and start it again.") from error


def _keep_rows(job: FineTuneJob, folder: RunFolder) -> None:
    """Copy card and rows, so that the dataset can be edited and deleted while the run goes on and is resumed."""
    folder.dataset.mkdir()
    try:
        # An edit replaces the folder as a whole, so that a card which is the same afterwards belongs to these rows.
        for name in (ROWS_FILE, CARD_FILE):
            shutil.copyfile(job.dataset / name, folder.dataset / name)
        is_same = read_card(folder.dataset).digest == job.dataset_digest
    except FileNotFoundError:
        is_same = False
    if not is_same:
        shutil.rmtree(folder.path, ignore_errors=True)
        told = f"The dataset {job.dataset.name} was changed or deleted since this run was planned. Plan it again."
        raise RunNotPossible(told)
