"""One build from beginning to end: find recordings, run the stages, review the clips, write the files.

Everything that takes time is cached by what it depends on, so a build that was cancelled or killed resumes where it
stopped, and building again does nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backend.audio.span import Span
from backend.cluster.connect import BUILD_DATASET, connect, is_ray_given, quiet_ray_data
from backend.dataset.build.assemble_clips import assemble
from backend.dataset.build.context import WEIGHTS_SUFFIX, BuildContext
from backend.dataset.build.exchange import open_exchange
from backend.dataset.build.heartbeat import BuildHeartbeat
from backend.dataset.build.passes import (
    count_as_reused,
    is_first_pass_done,
    is_second_pass_done,
    run_in_one_process,
    run_passes,
)
from backend.dataset.build.progress import StageCounts, shared_counts
from backend.dataset.build.ray_process import explain_lost_ray, run_on_own_ray
from backend.dataset.build.ray_tasks import DISK_FULL
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.stage_results import EncoderFacts
from backend.dataset.clips.views import BuildState, ClipEdit
from backend.dataset.errors import BuildCancelled, DatasetEmpty, DiskFull
from backend.dataset.sources.find import SourceRecording, keep_originals, open_sources
from backend.dataset.stages.clip_encoder import ClipEncoder
from backend.dataset.storage.build_table import BuildTable
from backend.dataset.storage.consent_table import ConsentTable
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.training_files import write_dataset
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.dataset.verdicts.calibration import understood_too_little
from backend.errors import EncoreError
from backend.settings import Settings
from backend.store.errors import ArtifactError, StoreError
from backend.store.home import Home
from backend.transcription.select_transcriber import SelectedTranscriber, language_code, select_transcriber
from training.errors import StorageError
from training.model.errors import DownloadCancelled
from training.model.hub.hub import DownloadProgress, resolve_model
from training.model.speaker_verifier import VERIFIER_WEIGHTS
from training.storage.objects import open_store

_logger = logging.getLogger(__name__)

_NOBODY_LISTENS = (
    "Texts that came along are taken as given, and clips without one need yours. "
    "With a Whisper model, to be downloaded behind the model button, they would be heard."
)


def run_build(job: BuildJob, home: Home, *, is_begun: bool = False) -> None:
    """Build a dataset; the caller holds its lock. Progress and outcome are written to the database.

    `is_begun`: the database has this build already, perhaps with a request to cancel it.

    Raises:
        EncoreError: it failed or was cancelled; what was finished is kept.
    """
    builds = BuildTable(home)
    if not is_begun:
        DatasetTable(home).save_job(job)
        builds.begin(job.name)
    try:
        Build(job, home).run()
    except EncoreError as error:
        state = BuildState.CANCELLED if isinstance(error, BuildCancelled) else BuildState.FAILED
        # If not even this can be written, the next reader finds a build that stopped unexpectedly.
        with contextlib.suppress(StoreError):
            builds.finish(job.name, state, str(error))
        raise
    except KeyboardInterrupt:
        builds.finish(job.name, BuildState.CANCELLED, "Interrupted from the keyboard. Build again to resume.")
        raise
    except Exception as error:
        # The edge of the job: users must see it end, whatever happened.
        _logger.exception("building %s failed", job.name)
        problem = f"A fault in Encore ended the build ({type(error).__name__}: {error}). Build again to resume."
        builds.finish(job.name, BuildState.FAILED, problem.replace("\n", " ")[:500])
        raise
    builds.finish(job.name, BuildState.DONE)


class Build:
    """A running build."""

    def __init__(self, job: BuildJob, home: Home) -> None:
        self._job = job
        self._home = home.folder
        self._table, self._consents = DatasetTable(home), ConsentTable(home.database)
        self._heartbeat = BuildHeartbeat(job.name, BuildTable(home))

    def run(self) -> None:
        """See `run_build`."""
        job, workspace = self._job, DatasetWorkspace(self._home)
        with open_sources(job, workspace) as recordings, self._heartbeat:
            if not recordings:
                raise DatasetEmpty(
                    "No recording was found. Name audio files, folders that hold some, or zip archives of them."
                )
            self._consents.give(
                job.name,
                {
                    found.content: one.consent
                    for one in job.consents
                    for found in recordings
                    if found.content and found.given in one.paths
                },
            )
            if job.keeps_originals:
                keep_originals([found.source for found in recordings if found.source], workspace)
            encoder, chosen = self._find_models([one.source.given_text or "" for one in recordings if one.source])
            self._heartbeat.note(_notice_of(chosen))
            context = BuildContext(
                home=self._home,
                job=job,
                model_folder=Path(encoder.folder),
                encoder_identity=encoder.identity,
                transcriber=chosen.source,
                language_code=language_code(job.language),
                kept=_decided_spans(self._table, job.name),
                counts=StageCounts(),
            )
            problems = self._run_stages([found.source for found in recordings if found.source], context)
            if DISK_FULL in problems.values():
                raise DiskFull(DISK_FULL)
            self._heartbeat.stop_if_cancelled()
            self._table.save_encoder(job.name, encoder)
            clips = assemble(recordings, context, self._table, problems)
            seen = self._table.recordings(job.name)
            # Why speech was left out comes before files that hold none.
            reasons = [lost.problem for one in seen for lost in one.details.lost]
            reasons += [one.problem for one in seen if one.problem]
            if reasons and not clips:
                # The reason itself: the dataset may be gone by the time that somebody looks for it there.
                raise DatasetEmpty(f"No clip could be cut from any recording. The first one: {reasons[0]}")
            if unknown := understood_too_little([clip.details for clip in clips], job.gates):
                self._heartbeat.note(
                    f"{chosen.notice} {' and '.join(unknown)} understands this voice too little to judge its texts, "
                    "which are taken as given.".strip()
                )
        write_dataset(workspace, job, encoder, clips)
        self._table.mark_rows(job.name, are_current=True)

    def _find_models(self, texts: list[str]) -> tuple[EncoderFacts, SelectedTranscriber]:
        """The encoder and the transcriber for recordings with these texts, downloaded if they are not here."""

        def report(progress: DownloadProgress) -> None:
            done, total = progress.bytes_done / 1e6, progress.bytes_total / 1e6
            self._heartbeat.note(f"Downloading {progress.file}: {done:.0f} of {total:.0f} MB.")

        def is_cancelled() -> bool:
            return self._heartbeat.is_cancelled

        try:
            encoder = encoder_facts(self._job.model, self._job.device, progress=report, cancel=is_cancelled)
            return encoder, select_transcriber(
                self._job.whisper, self._job.language, texts=texts, progress=report, cancel=is_cancelled
            )
        except DownloadCancelled:
            self._heartbeat.stop_if_cancelled()
            raise

    def _run_stages(self, sources: list[SourceRecording], context: BuildContext) -> dict[str, str]:
        """Run the stages; returns what went wrong, by recording or clip."""
        if all(is_first_pass_done(source, context) and is_second_pass_done(source, context) for source in sources):
            self._heartbeat.follow(context.counts)
            count_as_reused(sources, context)
            return {}
        self._heartbeat.stop_if_cancelled()
        if self._job.num_actors == 0:
            self._heartbeat.follow(context.counts)
            return run_in_one_process(sources, context)
        if not is_ray_given():
            return run_on_own_ray(sources, context, self._heartbeat)
        return self._run_on_cluster(sources, context)

    def _run_on_cluster(self, sources: list[SourceRecording], context: BuildContext) -> dict[str, str]:
        """The same on a Ray that was there before, whose machines may see nothing of this one."""
        store = open_store(Settings.from_environment().storage)
        with connect(BUILD_DATASET), explain_lost_ray():
            quiet_ray_data()
            context = replace(context, counts=shared_counts(), verifier_id=_verifier_of(context))
            with open_exchange(store, sources, context, self._heartbeat) as exchange:
                self._heartbeat.follow(context.counts)
                try:
                    problems = run_passes(sources, context, exchange)
                    if fault := context.counts.fault():
                        raise StorageError(fault)
                    return problems
                finally:
                    # The actor ends with Ray; these are its last counts.
                    self._heartbeat.beat()
                    self._heartbeat.follow(None)


def _verifier_of(context: BuildContext) -> str:
    """The speaker verifier's weights as an artefact; empty where they are missing."""
    try:
        return context.workspace.artifacts.keep_copy(VERIFIER_WEIGHTS, WEIGHTS_SUFFIX)
    except ArtifactError:
        if VERIFIER_WEIGHTS.is_file():
            raise
        return ""


def _notice_of(chosen: SelectedTranscriber) -> str:
    """Who listens, or why nobody does and what would help."""
    if chosen.source is not None:
        return chosen.notice
    return f"{chosen.notice or 'Nothing is transcribed, as was asked for.'} {_NOBODY_LISTENS}"


def _decided_spans(table: DatasetTable, name: str) -> dict[str, tuple[Span, ...]]:
    """Where the clips are, by recording, that the user decided something about: these stay as they are cut."""
    decided = {key for key, edit in table.edits(name).items() if edit != ClipEdit()} | {table.chosen_reference(name)}
    ids = {recording.details.audio_id: recording.recording_id for recording in table.recordings(name)}
    spans: dict[str, tuple[Span, ...]] = {}
    for clip in table.clips(name):
        recording_id = ids.get(clip.details.recording_audio_id)
        if clip.key in decided and recording_id is not None:
            spans[recording_id] = (*spans.get(recording_id, ()), clip.details.original.span)
    return spans


def encoder_facts(
    model: str,
    device: str,
    *,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> EncoderFacts:
    """Find a model, and what identifies its encoders. Raises EncoreError."""
    folder = resolve_model(model, progress=progress, cancel=cancel)
    encoder = ClipEncoder.load(folder, device)
    return EncoderFacts(
        model=model,
        folder=str(folder.absolute()),
        identity=encoder.identity,
        fingerprint=encoder.fingerprint,
        num_codebooks=encoder.num_codebooks,
    )
