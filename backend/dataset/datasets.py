"""All operations on datasets, for the page and the command line."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildProgress, BuildState, ClipEdit, DatasetView, RecordingView
from backend.dataset.editing import DatasetEditing
from backend.dataset.errors import DatasetNameTaken, DatasetNotFound
from backend.dataset.storage.build_table import BuildTable
from backend.dataset.storage.consent_table import ConsentTable
from backend.dataset.storage.lock import acquire_lock, dataset_lock
from backend.dataset.storage.training_files import dataset_folder, export_dataset
from backend.store.home import Home
from backend.store.trash import Deleted, Trash
from backend.voices.consent import Consent
from training.data.code_rows import TrainingDataError, read_card
from training.model.project import PROJECT_FOLDER

_JOBS_FOLDER = "jobs/dataset"
_POLL_SECONDS = 0.5


class Datasets(DatasetEditing):
    """The datasets of one home. Objects are cheap; any number of processes may have one."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._builds, self._consents, self._trash = BuildTable(home), ConsentTable(home.database), Trash(home)

    def start_build(self, job: BuildJob, *, replaces: bool = False) -> Deleted | None:
        """Build in a process of its own, which continues when this one ends; watch it with `progress`.

        A dataset of the name that is made of other recordings is put into the trash where the build `replaces` it.

        Returns:
            What is in the trash now.

        Raises:
            DatasetNameTaken: the build would take recordings out of a dataset.
            DatasetBusy: the dataset is being built or edited already.
        """
        lock = acquire_lock(self._home.folder, job.name)
        try:
            replaced = self._make_place(job, replaces=replaces)
            folder = self._home.folder / _JOBS_FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            job_file, log_file = folder / f"{job.name}.json", folder / f"{job.name}.log"
            job_file.write_text(job.model_dump_json(indent=1), encoding="utf-8")
            self._table.save_job(job)
            self._builds.begin(job.name)
            with log_file.open("wb") as log:
                process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "backend.dataset.build.build_process"),
                        *(str(job_file), str(self._home.folder), str(lock)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=PROJECT_FOLDER,
                    # It inherits the lock, so that the dataset is locked without a gap.
                    pass_fds=[lock],
                    # Closing the terminal, or Ctrl-C in it, must not end it.
                    start_new_session=True,
                )
            # Reaps it when it ends; otherwise it would stay as a zombie.
            threading.Thread(target=process.wait, daemon=True, name=f"dataset-build-{job.name}").start()
            return replaced
        finally:
            os.close(lock)

    def build(self, job: BuildJob, *, replaces: bool = False) -> DatasetView:
        """Build in this process; see `start_build`.

        Raises:
            EncoreError: it failed, was cancelled, is under way elsewhere, or would take recordings out of a dataset.
        """
        # Here: Ray and PyTorch take seconds to load, and only a build needs them.
        from backend.dataset.build.build import run_build  # noqa: PLC0415 - see above

        with dataset_lock(self._home.folder, job.name):
            self._make_place(job, replaces=replaces)
            run_build(job, self._home)
        return self.show(job.name)

    def build_and_wait(self, job: BuildJob, on_progress: Callable[[BuildProgress], None]) -> None:
        """Build in a process of its own, and wait for its end; `on_progress` is called while it runs.

        If `on_progress` raises, the build is cancelled; what it has done is kept.

        Raises:
            TrainingDataError: it failed or was cancelled.
            DatasetBusy: see `start_build`.
        """
        self.start_build(job)
        try:
            while (progress := self.progress(job.name)).is_running:
                on_progress(progress)
                time.sleep(_POLL_SECONDS)
        finally:
            # No effect on a build that has ended.
            self.cancel(job.name)
        if progress.state is not BuildState.DONE:
            raise TrainingDataError(
                progress.problem or f"The dataset {job.name} is {progress.state}. Build it again to resume."
            )

    def added_to(self, name: str, job: BuildJob) -> BuildJob:
        """The request that adds the recordings of `job` to a dataset, with everything decided about it.

        Raises:
            DatasetNotFound: there is none of this name.
        """
        return job.added_to(self._table.job(name))

    def job(self, name: str) -> BuildJob:
        """What a dataset is made of. Raises DatasetNotFound."""
        return self._table.job(name)

    def free_name(self, name: str) -> str:
        """This name, or one like it that no dataset has."""
        taken = self.list()
        numbered = (f"{name[:58]}-{number}" for number in itertools.count(2))
        return name if name not in taken else next(one for one in numbered if one not in taken)

    def describe_work(self, name: str) -> str:
        """What would go with a dataset: `30 clips, 3 edits`. Raises DatasetNotFound."""
        self._table.job(name)
        counts = (
            (len(self._table.clips(name)), "clip"),
            (sum(edit != ClipEdit() for edit in self._table.edits(name).values()), "edit"),
        )
        return ", ".join(f"{number} {what}" if number == 1 else f"{number} {what}s" for number, what in counts)

    def progress(self, name: str) -> BuildProgress:
        """How the running build is doing, or how the last one ended. Raises DatasetNotFound."""
        return self._builds.progress(name)

    def cancel(self, name: str) -> None:
        """Ask the running build to stop, which takes a clip or two. Raises DatasetNotFound."""
        self._builds.progress(name)
        self._builds.request_cancel(name)

    def list(self) -> list[str]:
        """Names of all datasets, the newest first."""
        return self._table.names()

    def consents(self, name: str) -> dict[str, Consent | None]:
        """By the hash of each recording of a dataset, the consent to clone it. Raises DatasetNotFound."""
        self._table.job(name)
        return self._consents.of(name)

    def give_consent(self, name: str, consent: Consent) -> None:
        """Store a consent for those recordings of a dataset that have none. Raises DatasetNotFound."""
        missing = [recording_id for recording_id, given in self.consents(name).items() if given is None]
        self._consents.give(name, dict.fromkeys(missing, consent))

    def folder(self, name: str) -> Path:
        """The training files. Raises DatasetNotFound, or TrainingDataError if no build has finished."""
        self._table.job(name)
        folder = dataset_folder(self._home.folder, name)
        read_card(folder)
        return folder

    def show(self, name: str) -> DatasetView:
        """Everything about a dataset. Raises DatasetNotFound."""
        job = self._table.job(name)
        folder = dataset_folder(self._home.folder, name)
        try:
            progress = self._builds.progress(name)
        except DatasetNotFound:
            progress = None
        digest = self._digest(name)
        return DatasetView(
            name=name,
            model=job.model,
            language=job.language,
            state=progress.state if progress else BuildState.INTERRUPTED,
            problem=progress.problem if progress else "",
            notice=progress.notice if progress else "",
            folder=folder,
            digest=digest,
            rows_are_current=digest is not None and self._table.rows_are_current(name),
            recordings=self._table.recordings(name),
            clips=tuple(self._table.clips(name)),
        )

    def recordings(self, name: str) -> tuple[RecordingView, ...]:
        """The files of a dataset, and what became of each in the last build that read them all."""
        return self._table.recordings(name)

    def is_built(self, name: str) -> bool:
        """Whether it can be fine-tuned on. Raises DatasetNotFound."""
        return self._digest(name) is not None

    def rows_are_current(self, name: str) -> bool:
        """Whether the training files reflect all edits. Raises DatasetNotFound."""
        return self._table.rows_are_current(name) and self.is_built(name)

    def export(self, name: str, folder: Path) -> int:
        """Write WAV and JSONL for other tools; returns the number of clips. Raises EncoreError."""
        self._table.job(name)
        return export_dataset(self._table.clips(name), folder.expanduser())

    def delete(self, name: str) -> Deleted:
        """Put a dataset with its files into the trash; in the end go its uploads, but for what other datasets use.

        Raises:
            DatasetNotFound: there is none.
            DatasetBusy: it is being built or edited.
        """
        self._table.job(name)
        with dataset_lock(self._home.folder, name):
            deleted = self._trash.put("dataset", name, name, makes_room=dataset_folder(self._home.folder, name))
        if deleted is None:
            raise DatasetNotFound(f"There is no dataset {name!r} any more.")
        return deleted

    def restore(self, deleted: Deleted) -> Deleted | None:
        """Bring a dataset back; one that has taken its name goes into the trash instead, and is returned.

        Raises:
            TrashNotFound, TrashBusy: see `Trash.restore`.
            DatasetBusy: the dataset that has its name is being built or edited.
        """
        instead = self.delete(deleted.item_id) if deleted.item_id in self.list() else None
        self._trash.restore(deleted.id)
        return instead

    def _make_place(self, job: BuildJob, *, replaces: bool) -> Deleted | None:
        """Make sure that a build takes nothing away unasked; the caller holds the lock. Raises DatasetNameTaken."""
        folder = dataset_folder(self._home.folder, job.name)
        self._trash.make_room(folder)
        if job.name not in self._table.names() or set(self._table.job(job.name).recordings) <= set(job.recordings):
            return None
        if not self._table.clips(job.name) and not self._table.edits(job.name):
            return None  # a build that came to nothing
        if not replaces:
            raise DatasetNameTaken(
                f"There is a dataset {job.name} of other recordings ({self.describe_work(job.name)}). Add these to it "
                f"(--add), replace it (--replace), or call this one {self.free_name(job.name)}."
            )
        return self._trash.put("dataset", job.name, job.name, makes_room=folder)

    def _digest(self, name: str) -> str | None:
        """Of the training files; None if no build has finished."""
        self._table.job(name)
        try:
            return read_card(dataset_folder(self._home.folder, name)).digest
        except TrainingDataError:
            return None
