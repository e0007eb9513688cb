"""One build from beginning to end: find recordings, run what is missing of the stages, judge, write.

Everything that takes time is kept by what it depends on, so a build that was cancelled or killed goes on where it
was, and building again does nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backend.cluster.connect import BUILD_DATASET, connect, quiet_ray_data
from backend.dataset.build.assemble_clips import assemble
from backend.dataset.build.context import BuildContext, SourceRecording
from backend.dataset.build.heartbeat import BuildHeartbeat
from backend.dataset.build.passes import count_as_reused, is_listened_to, is_tokenized, run_passes
from backend.dataset.build.progress import StageCounts
from backend.dataset.build.sequential import run_in_one_process
from backend.dataset.build.shared_progress import SharedCounts
from backend.dataset.build.workers import DISK_FULL
from backend.dataset.clips.job import BuildJob
from backend.dataset.clips.records import EncoderFacts
from backend.dataset.clips.views import BuildState
from backend.dataset.errors import BuildCancelled, DiskFull, NothingToBuild
from backend.dataset.sources.find import FoundRecording, keep_originals, open_sources
from backend.dataset.stages.clip_encoder import ClipEncoder
from backend.dataset.storage.build_table import BuildTable
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.training_files import write_dataset
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.errors import EncoreError
from backend.store.database import Database
from backend.store.errors import StoreError
from backend.transcription.select import ChosenTranscriber, find_transcriber, language_code
from training.model.errors import DownloadCancelled
from training.model.hub.hub import DownloadProgress, resolve_model

_logger = logging.getLogger(__name__)


def run_build(job: BuildJob, database: Database, home: Path, *, is_begun: bool = False) -> None:
    """Build a dataset; the caller holds its lock. How it goes is in the database, and so is its end.

    `is_begun` says that the database knows of this build already, perhaps also that it is to be cancelled.

    Raises:
        EncoreError: it failed or was cancelled; what was finished is kept.
    """
    builds = BuildTable(database, home)
    if not is_begun:
        DatasetTable(database).save_job(job)
        builds.begin(job.name)
    try:
        Build(job, database, home).run()
    except EncoreError as error:
        state = BuildState.CANCELLED if isinstance(error, BuildCancelled) else BuildState.FAILED
        # Where not even this can be written, the next look finds a build that ended without a word.
        with contextlib.suppress(StoreError):
            builds.finish(job.name, state, str(error))
        raise
    except KeyboardInterrupt:
        builds.finish(job.name, BuildState.CANCELLED, "Interrupted from the keyboard. Build again to go on.")
        raise
    except Exception as error:
        # The edge of the job: whoever watches must see it end, whatever happened.
        _logger.exception("building %s failed", job.name)
        problem = f"A fault in Encore ended the build ({type(error).__name__}: {error}). Build again to go on."
        builds.finish(job.name, BuildState.FAILED, problem.replace("\n", " ")[:500])
        raise
    builds.finish(job.name, BuildState.DONE)


class Build:
    """One build under way."""

    def __init__(self, job: BuildJob, database: Database, home: Path) -> None:
        self._job = job
        self._home = home
        self._table = DatasetTable(database)
        self._pulse = BuildHeartbeat(job.name, BuildTable(database, home))

    def run(self) -> None:
        """See `run_build`."""
        job, workspace = self._job, DatasetWorkspace(self._home)
        with open_sources(job, workspace) as recordings, self._pulse:
            if not recordings:
                raise NothingToBuild(
                    "No recording was found. Name audio files, folders that hold some, or zip archives of them."
                )
            if job.keeps_originals:
                keep_originals([found.source for found in recordings if found.source], workspace)
            encoder, chosen = self._find_models()
            self._check_texts(recordings, chosen)
            order = BuildContext(
                home=self._home,
                job=job,
                model_folder=Path(encoder.folder),
                encoder_identity=encoder.identity,
                transcriber=chosen.source,
                language_code=language_code(job.language),
                counts=StageCounts(),
            )
            problems = self._do_what_is_missing([found.source for found in recordings if found.source], order)
            if DISK_FULL in problems.values():
                raise DiskFull(DISK_FULL)
            self._pulse.stop_if_cancelled()
            self._table.save_encoder(job.name, encoder)
            clips = assemble(recordings, order, self._table, problems)
        write_dataset(workspace, job, encoder, clips)
        self._table.mark_rows(job.name, are_current=True)

    def _find_models(self) -> tuple[EncoderFacts, ChosenTranscriber]:
        """Who encodes and who listens, downloaded where they are not here yet."""

        def tell(progress: DownloadProgress) -> None:
            done, total = progress.bytes_done / 1e6, progress.bytes_total / 1e6
            self._pulse.note(f"Downloading {progress.file}: {done:.0f} of {total:.0f} MB.")

        def is_cancelled() -> bool:
            return self._pulse.is_cancelled

        try:
            encoder = encoder_facts(self._job.model, self._job.device, progress=tell, cancel=is_cancelled)
            return encoder, find_transcriber(self._job, progress=tell, cancel=is_cancelled)
        except DownloadCancelled:
            self._pulse.stop_if_cancelled()
            raise

    def _check_texts(self, recordings: list[FoundRecording], chosen: ChosenTranscriber) -> None:
        """Say what the person should know of the transcriber, and stop where there can be no text at all."""
        self._pulse.note(chosen.notice)
        sources = [found.source for found in recordings if found.source is not None]
        if chosen.source is None and sources and not any(source.given_text for source in sources):
            raise NothingToBuild(
                chosen.notice
                or "No recording came with a text, and no transcriber was asked for. Name one, or add texts."
            )

    def _do_what_is_missing(self, sources: list[SourceRecording], order: BuildContext) -> dict[str, str]:
        """Run the stages; tells what went wrong, by recording or clip."""
        if all(is_listened_to(source, order) and is_tokenized(source, order) for source in sources):
            self._pulse.follow(order.counts)
            count_as_reused(sources, order)
            return {}
        self._pulse.stop_if_cancelled()
        if self._job.num_actors == 0:
            self._pulse.follow(order.counts)
            return run_in_one_process(sources, order)
        with connect(BUILD_DATASET):
            quiet_ray_data()
            order = replace(order, counts=SharedCounts())
            self._pulse.follow(order.counts)
            try:
                return run_passes(sources, order)
            finally:
                # The last word of the actor, which ends with Ray.
                self._pulse.beat()
                self._pulse.follow(None)


def encoder_facts(
    model: str,
    device: str,
    *,
    progress: Callable[[DownloadProgress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> EncoderFacts:
    """Find a model, and what its listening half is known by. Raises EncoreError."""
    folder = resolve_model(model, progress=progress, cancel=cancel)
    encoder = ClipEncoder.load(folder, device)
    return EncoderFacts(
        model=model,
        folder=str(folder.absolute()),
        identity=encoder.identity,
        fingerprint=encoder.fingerprint,
        num_codebooks=encoder.num_codebooks,
    )
