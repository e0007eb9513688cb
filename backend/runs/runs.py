"""Fine-tunes: planned, started, watched and steered. Any number of processes may hold one; supervisors do the work."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backend.dataset.storage.consent_table import ConsentTable
from backend.dataset.storage.lock import DATASETS_FOLDER
from backend.errors import EncoreError, OutputInvalid
from backend.runs.errors import RunError, RunInvalid, RunNotFound, RunStateInvalid
from backend.runs.method_table import MethodRow, compare_methods
from backend.runs.process.select_checkpoint import winner
from backend.runs.process.supervisor_process import end_owner, has_owner, start_watchdog
from backend.runs.report import write_report
from backend.runs.storage.control import Control
from backend.runs.storage.records import CheckpointRecord, EventRecord, MetricRecord, RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.store.lock import acquire
from backend.store.trash import Deleted, Trash
from backend.voices.consent import Consent, consent_of_several_missing, consents_of_all, require_consent
from backend.voices.errors import ConsentMissing
from training.data.code_rows import CARD_FILE, ROWS_FILE, read_card
from training.job import FineTuneJob, JobSpeaker
from training.model.checkpoint.hashes import HASHES_FILE, find_damage
from training.run_checkpoints import list_checkpoints

if TYPE_CHECKING:
    from backend.runs.planning.plan import DataPlan, RunPlan
    from backend.runs.planning.request import RunRequest

LET_GO_SECONDS = 5.0
"""How long to wait for a run's lock that another process is just giving back."""

HUNG_AFTER_SECONDS = 20.0
"""A supervisor that has not obeyed a cancel for so long is ended by the next one."""


class Runs:
    """All fine-tunes of one home."""

    def __init__(self, home: Home, *, num_cpus: int | None = None) -> None:
        """Look after the runs in `home`.

        Args:
            home: workers must see its folder.
            num_cpus: how many workers may share this machine; as many as it has processors when None.
        """
        self._opened, self._home, self._num_cpus = home, home.folder, num_cpus
        self._rows, self._trash = RunTable(home.database), Trash(home)

    def plan(self, request: RunRequest) -> RunPlan:
        """Plan a run without storing anything.

        Raises:
            EncoreError: there is nothing to plan, see `plan_run`; what else is in the way is among its problems.
        """
        # Here and in `export`: networks take seconds to load, and listing or steering runs needs none.
        from backend.runs.planning.plan import plan_run  # noqa: PLC0415 - see above

        return plan_run(request, self._opened, self._num_cpus)

    def start(self, plan: RunPlan, consent: Consent | None) -> str:
        """Begin a run and return its id; it continues after the caller has ended.

        Args:
            plan: of a request that names a voice and a dataset.
            consent: for recordings of the dataset that were given without one; stored with the dataset. Of several
                speakers it is for the one without, and every other dataset has its own already.

        Raises:
            EncoreError: consent is missing or contradicts what was stated for the recordings, the plan has
                problems, the dataset was changed, the disk is full, or the run's process cannot be started.
        """
        plan.require_possible()
        assert plan.data is not None, "a run without a dataset is not started"
        assert plan.request.voice is not None, "a run without a name is not started"
        agreed = self._agreed(plan.job.speakers, consent)
        folder = RunFolder.of(self._home, plan.run_id)
        _store(plan, plan.data, folder)
        with self._owning(plan.run_id) as lock:
            self._rows.add(_new_record(plan, plan.data, agreed))
            self._start_watchdog(plan.run_id, lock)
        return plan.run_id

    def needs_consent(self, plan: RunPlan) -> bool:
        """Whether recordings of a dataset have none yet, so that `start` has to be given one."""
        return bool(self._without_consent(plan.job.speakers))

    def list(self) -> list[RunRecord]:
        """All runs, the newest first."""
        return self._rows.list()

    def get(self, run_id: str) -> RunRecord:
        """One run as it stands. Raises RunNotFound."""
        return self._rows.get(run_id)

    def metrics(self, run_id: str, after_step: int = 0) -> Sequence[MetricRecord]:
        """What each step after `after_step` reported. Raises RunNotFound."""
        return self._rows.metrics(run_id, after_step)

    def checkpoints(self, run_id: str) -> Sequence[CheckpointRecord]:
        """The base model and the checkpoints, with their scores and takes. Raises RunNotFound."""
        return self._rows.checkpoints(run_id)

    def events(self, run_id: str) -> Sequence[EventRecord]:
        """Faults, resumes and the like. Raises RunNotFound."""
        self._rows.get(run_id)
        return self._rows.events(run_id)

    def log(self, run_id: str) -> str:
        """What supervisor, Ray and workers printed. Raises RunNotFound."""
        self._rows.get(run_id)
        return RunFolder.of(self._home, run_id).read_log()

    def folder(self, run_id: str) -> Path:
        """Where its files are; takes name theirs relative to it."""
        return RunFolder.of(self._home, run_id).path

    def num_bytes(self, run_id: str) -> int:
        """What the files of a run take; some may be shared with a voice made of it."""
        total = 0
        for path in self.folder(run_id).rglob("*"):
            # What a running one works on may be gone by now.
            with suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
        return total

    def newest_measures(self, run_id: str) -> dict[str, float]:
        """What the newest step reported; nothing before the first. Raises RunNotFound."""
        newest = self._rows.metrics(run_id, self._rows.get(run_id).step - 1)
        return dict(newest[-1].measures) if newest else {}

    def is_looked_after(self, run_id: str) -> bool:
        """Whether a supervisor is running it. Raises RunNotFound."""
        return self._is_looked_after(self._rows.get(run_id))

    def seconds_left(self, run_id: str) -> float | None:
        """Estimate of what training still takes, from the newest steps; None before there are any."""
        run = self._rows.get(run_id)
        recent = self._rows.metrics(run_id, max(0, run.step - 20))
        paces = [record.measures["seconds_per_step"] for record in recent if "seconds_per_step" in record.measures]
        return (run.num_steps - run.step) * sum(paces) / len(paces) if paces else None

    def cancel(self, run_id: str) -> None:
        """End a run for now; its last checkpoint is kept, and it can be resumed.

        Raises:
            RunNotFound, RunStateInvalid: there is nothing to cancel.
        """
        run = self._rows.get(run_id)
        if not run.state.is_active and run.state not in (RunState.PAUSED, RunState.INTERRUPTED):
            raise RunStateInvalid(f"Run {run_id} is {run.state}, so there is nothing to cancel.")
        folder = RunFolder.of(self._home, run_id)
        control = Control.read(folder.control)
        asked_before = control.stop == "cancel"
        is_hung = asked_before and time.monotonic() - (control.asked_at or 0) > HUNG_AFTER_SECONDS
        if not asked_before:
            folder.ask_to_stop("cancel")
        if run.state.is_active and self._is_looked_after(run) and not is_hung:
            return
        self._end_leftovers(run)
        self._rows.move(run_id, RunState.CANCELLED, "Cancelled. Its last checkpoint is kept.")

    def pause(self, run_id: str) -> None:
        """Let a run save a checkpoint after its step, and free the machine.

        Raises:
            RunNotFound, RunStateInvalid: it is not running.
        """
        run = self._rows.get(run_id)
        if not run.state.is_active:
            raise RunStateInvalid(f"Run {run_id} is {run.state}, so it cannot be paused.")
        if self._is_looked_after(run):
            RunFolder.of(self._home, run_id).ask_to_stop("pause")
        else:
            self._end_leftovers(run)
            self._rows.move(run_id, RunState.PAUSED, "Paused. Resuming continues from the last checkpoint.")

    def resume(self, run_id: str) -> None:
        """Continue from the last complete checkpoint.

        Raises:
            RunNotFound, RunStateInvalid: it is running, or done.
        """
        run, folder = self._as_it_is(self._rows.get(run_id)), RunFolder.of(self._home, run_id)
        if not run.state.can_resume:
            raise RunStateInvalid(f"Run {run_id} is {run.state}, so it cannot be resumed.")
        if not folder.job.is_file():
            raise RunError(f"The files of run {run_id} are gone from {folder.path}. Start a new run.")
        if self._is_looked_after(run):
            # Its row is final, and its process only waits for Ray to end.
            self._end_leftovers(run)
        with self._owning(run_id) as lock:
            self._rows.move(run_id, RunState.QUEUED, "Waiting to continue.")
            self._rows.add_event(run_id, "Resumed.")
            Control.read(folder.control).model_copy(update={"stop": None, "asked_at": None}).write(folder.control)
            self._start_watchdog(run_id, lock)

    def delete(self, run_id: str) -> Deleted:
        """Put a run with its files into the trash; a voice made of it stays.

        Raises:
            RunNotFound, RunStateInvalid: it is running.
        """
        run = self._rows.get(run_id)
        if run.state.is_active and self._is_looked_after(run):
            raise RunStateInvalid(f"Run {run_id} is {run.state}. Cancel it before you delete it.")
        self._end_leftovers(run)
        deleted = self._trash.put("run", run_id, f"The run for {run.voice}", files=[self.folder(run_id)])
        if deleted is None:
            raise RunNotFound(run_id)
        return deleted

    def export(
        self, run_id: str, folder: Path, checkpoint: str | None = None, *, merged: bool = False
    ) -> Sequence[Path]:
        """Write a checkpoint to a folder that does not exist yet, and return what it holds.

        Args:
            run_id: of the run.
            folder: an adapter's own; otherwise it holds a folder for each variant of the whole model.
            checkpoint: its name; the best one when None, or the newest while there is none.
            merged: write an adapter as whole models too, merged into its base.

        Raises:
            EncoreError: there is no such run or checkpoint, or it cannot be written.
        """
        run, own = self._rows.get(run_id), RunFolder.of(self._home, run_id)
        names = [found.folder.name for found in list_checkpoints(own.path)]
        name = checkpoint or run.best_checkpoint or next(reversed(names), "")
        if name not in names:
            known = f"It has: {', '.join(names)}." if names else "It has none to export."
            raise RunInvalid(f"Run {run_id} has no checkpoint{f' {name[:40]!r}' if name else ''}. {known}")
        if folder.exists():
            raise OutputInvalid(f"{folder} exists already. Name a new folder.")
        from backend.runs.process.conclude_run import read_exportable  # noqa: PLC0415 - see `plan`
        from training.export import export_adapter, export_all  # noqa: PLC0415

        weights = read_exportable(own, name)
        if weights.adapter is not None and not merged:
            export_adapter(weights, folder)
            return [folder]
        return list(export_all(replace(weights, adapter=None), folder).values())

    def methods(self, run_id: str) -> Sequence[MethodRow]:
        """Zero-shot and the ways in which the same clips were learnt; see `compare_methods`. Raises RunNotFound."""
        return compare_methods(self._rows.get(run_id), self._rows, self._home)

    def write_report(self, run_id: str, path: Path | None = None) -> Path:
        """Write the run's page, finished or not; among its other files unless a path is given.

        Raises:
            EncoreError: there is no such run, or the page cannot be written.
        """
        run, folder = self._rows.get(run_id), RunFolder.of(self._home, run_id)
        destination = path or folder.report
        if not destination.absolute().parent.is_dir():
            raise OutputInvalid(f"The folder {destination.absolute().parent} does not exist. Create it first.")
        events, checkpoints = self._rows.events(run_id), self.checkpoints(run_id)
        write_report(
            destination,
            run,
            self.metrics(run_id),
            checkpoints,
            events,
            folder.path,
            compare_methods(run, self._rows, self._home),
            starred=winner(run.best_checkpoint, checkpoints),
        )
        return destination

    def reconcile(self, *, resume: bool = True) -> Sequence[str]:
        """Compare the rows with the processes that live, and let what was interrupted go on; called at app start.

        Returns:
            Ids of the runs that were resumed.
        """
        resumed = []
        for run in map(self._as_it_is, self._rows.list()):
            if resume and run.state is RunState.INTERRUPTED:
                try:
                    self.resume(run.id)
                except EncoreError as error:
                    self._rows.add_event(run.id, f"It could not be resumed: {error}")
                    continue
                resumed.append(run.id)
        return resumed

    def _agreed(self, speakers: Sequence[JobSpeaker], given: Consent | None) -> dict[str, Consent]:
        """The consent for the recordings of each speaker, by the name of the voice.

        Raises:
            ConsentMissing: a speaker has none, and none is given; or several have none.
            ConsentInvalid: what is given differs from what was stated for the recordings.
        """
        without = self._without_consent(speakers)
        if len(speakers) > 1 and (len(without) > 1 or (without and given is None)):
            raise consent_of_several_missing(without)
        # What is given is one person's, and so is never stated for those who have their own.
        is_for = without or tuple(speaker.voice for speaker in speakers)
        return {
            speaker.voice: self._agreed_alone(speaker, given if speaker.voice in is_for[:1] else None)
            for speaker in speakers
        }

    def _without_consent(self, speakers: Sequence[JobSpeaker]) -> Sequence[str]:
        """The voices whose recordings have no consent yet, or not all of them."""
        without = []
        for speaker in speakers:
            try:
                self._agreed_alone(speaker, None)
            except ConsentMissing:
                without.append(speaker.voice)
        return without

    def _agreed_alone(self, speaker: JobSpeaker, given: Consent | None) -> Consent:
        """The consent for the recordings of one speaker. Raises ConsentMissing, ConsentInvalid."""
        dataset = speaker.dataset
        if dataset.resolve().parent == (self._home / DATASETS_FOLDER).resolve():
            return ConsentTable(self._opened.database).agreed(dataset.name, given)
        # One that was made elsewhere says nothing of its recordings.
        return require_consent(given)

    def _as_it_is(self, run: RunRecord) -> RunRecord:
        """The run with its state put right if its process is gone."""
        if not run.state.is_active or self._is_looked_after(run):
            return run
        if not self.folder(run.id).is_dir():
            return self._interrupt(run)
        try:
            with self._owning(run.id):
                run = self._rows.get(run.id)
                return self._interrupt(run) if run.state.is_active else run
        except RunStateInvalid:  # another process has just begun to see to it
            return self._rows.get(run.id)

    def _interrupt(self, run: RunRecord) -> RunRecord:
        self._end_leftovers(run)
        self._rows.add_event(run.id, "Its process was gone.")
        return self._rows.move(run.id, RunState.INTERRUPTED, "Interrupted: its process ended unexpectedly.")

    @contextmanager
    def _owning(self, run_id: str) -> Iterator[int]:
        """Hold the run's lock for a block, with its descriptor. Raises RunStateInvalid while another process does."""
        lock = acquire(RunFolder.of(self._home, run_id).lock, wait_seconds=LET_GO_SECONDS)
        if lock is None:
            raise RunStateInvalid(f"Another process is seeing to run {run_id} just now. Look at it again.")
        try:
            yield lock
        finally:
            os.close(lock)

    def _start_watchdog(self, run_id: str, lock: int) -> None:
        try:
            process_id = start_watchdog(run_id, self._home, RunFolder.of(self._home, run_id), lock)
        except RunError as error:
            self._rows.move(run_id, RunState.FAILED, str(error))
            raise
        self._rows.change(run_id, process_id=process_id)

    def _is_looked_after(self, run: RunRecord) -> bool:
        return has_owner(run, RunFolder.of(self._home, run.id))

    def _end_leftovers(self, run: RunRecord) -> None:
        end_owner(run, RunFolder.of(self._home, run.id))


def _new_record(plan: RunPlan, data: DataPlan, consents: dict[str, Consent]) -> RunRecord:
    speakers = plan.job.speakers
    return RunRecord(
        id=plan.run_id,
        dataset=data.dataset,
        voice=", ".join(speaker.voice for speaker in speakers),
        model=plan.request.model,
        preset=data.preset,
        strategy=plan.job.strategy,
        num_workers=plan.job.num_workers,
        state=RunState.QUEUED,
        message="Waiting to begin.",
        created_at=time.time(),
        num_steps=data.estimate.num_steps,
        consent=consents_of_all(consents.values()),
        consents=consents if len(speakers) > 1 else {},
        job=plan.job,
    )


def _store(plan: RunPlan, data: DataPlan, folder: RunFolder) -> None:
    """Write everything that a supervisor needs; on failure nothing is left behind.

    Raises:
        RunStateInvalid: it was started already.
        RunInvalid: the dataset is no longer what the run was planned with.
        RunError: the disk is full.
    """
    if folder.job.exists():
        raise RunStateInvalid(f"Run {plan.run_id} was started already. Plan another one.")
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        _keep_rows(plan.job, folder)
        folder.launch.write_text(plan.launch.model_dump_json(indent=1) + "\n", encoding="utf-8")
        folder.evaluation_plan.write_text(data.evaluation.model_dump_json(), encoding="utf-8")
        Control(attempt=0).write(folder.control)
        plan.job.write(folder.job)
    except OSError as error:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise RunError(f"The run cannot be stored: {error.strerror}. Free some space and start it again.") from error


def _keep_rows(job: FineTuneJob, folder: RunFolder) -> None:
    """Copy cards and rows, so that datasets can be edited and deleted while the run goes on and is resumed."""
    for speaker, copied in zip(job.speakers, folder.datasets(len(job.speakers)), strict=True):
        try:
            _copy_rows(speaker, copied)
        except RunInvalid:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise


def _copy_rows(speaker: JobSpeaker, copied: Path) -> None:
    """Copy the card and the rows of one dataset. Raises RunInvalid, OSError."""
    dataset = speaker.dataset
    copied.mkdir()
    try:
        # An edit replaces the folder as a whole, so that a card which is the same afterwards belongs to these rows.
        for name in (ROWS_FILE, CARD_FILE, HASHES_FILE):
            if name != HASHES_FILE or (dataset / name).is_file():
                shutil.copyfile(dataset / name, copied / name)
        if damage := find_damage(copied):
            raise RunInvalid(f"{dataset / damage[0]} is damaged: not what was written. Build the dataset again.")
        is_same = read_card(copied).digest == speaker.dataset_digest
    except FileNotFoundError:
        is_same = False
    if not is_same:
        raise RunInvalid(
            f"The dataset {dataset.name} was changed or deleted since this run was planned. Plan it again."
        )
