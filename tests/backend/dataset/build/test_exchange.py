"""What a machine makes that sees neither home nor recordings nor model, handed over through a storage; without Ray."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from backend.dataset.build.build import encoder_facts
from backend.dataset.build.context import WEIGHTS_SUFFIX, BuildContext
from backend.dataset.build.exchange import BuildExchange, stored_build
from backend.dataset.build.heartbeat import BuildHeartbeat
from backend.dataset.build.passes import is_second_pass_done, run_in_one_process
from backend.dataset.build.progress import StageCounts
from backend.dataset.build.ray_tasks import SOURCE_SCHEMA, decode, source_row
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.datasets import Datasets
from backend.dataset.errors import BuildCancelled
from backend.dataset.sources.find import SourceRecording, open_sources
from backend.dataset.storage.build_table import BuildTable
from backend.dataset.storage.dataset_table import DatasetTable
from backend.dataset.storage.stored_builds import remove_abandoned
from backend.dataset.storage.stored_workspace import BUILDS_FOLDER, StoredWorkspace, folder_here, open_workspace
from backend.dataset.storage.workspace import CACHE_FOLDER, DatasetWorkspace
from backend.store.home import Home
from backend.transcription.select_transcriber import TranscriberSource
from tests.golden import GOLDEN_CHECKPOINT
from training.errors import StorageDamaged, StorageError
from training.model.speaker_verifier import VERIFIER_WEIGHTS
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore


class Office:
    """The machine of a build: recordings, model and home, none of which another machine sees."""

    def __init__(self, folder: Path, recordings: Path, job: Callable[..., BuildJob]) -> None:
        self.folder = folder / "office"
        given = shutil.copytree(recordings, self.folder / recordings.name)
        (self.folder / "model").symlink_to(GOLDEN_CHECKPOINT)
        self.home = Home(self.folder / "home")
        self.job = job(given, model=str(self.folder / "model"))
        encoder = encoder_facts(self.job.model, "cpu")
        DatasetTable(self.home).save_job(self.job)
        BuildTable(self.home).begin(self.job.name)
        self.heartbeat = BuildHeartbeat(self.job.name, BuildTable(self.home))
        workspace = DatasetWorkspace(self.home.folder)
        self.context = BuildContext(
            home=self.home.folder,
            job=self.job,
            model_folder=Path(encoder.folder),
            encoder_identity=encoder.identity,
            transcriber=None,
            language_code=None,
            counts=StageCounts(),
            verifier_id=workspace.artifacts.keep_copy(VERIFIER_WEIGHTS, WEIGHTS_SUFFIX),
        )
        with open_sources(self.job, workspace) as found:
            self.sources = [one.source for one in found if one.source]

    @contextmanager
    def exchange(self, store: ObjectStore) -> Iterator[BuildExchange]:
        unseen = {self.context.model_folder}
        # A proof that no machine sees.
        with stored_build(store, self.folder / "proof", unseen, self.context, self.heartbeat) as stored:
            yield BuildExchange(store, stored, self.context, self.heartbeat)

    @contextmanager
    def out_of_sight(self) -> Iterator[None]:
        away = self.folder.rename(self.folder.with_name("away"))
        try:
            yield
        finally:
            away.rename(self.folder)

    def rebuilt(self) -> tuple[str | None, list[int]]:
        """Digest of the dataset once it is built here, and how much each stage had to do for that."""
        datasets = Datasets(self.home)
        digest = datasets.build(self.job).digest
        return digest, [stage.num_done - stage.num_reused for stage in datasets.progress(self.job.name).stages]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "shared").mkdir()
    return ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)


@pytest.fixture
def office(tmp_path: Path, recordings: Path, job: Callable[..., BuildJob], monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    return Office(tmp_path, recordings, job)


@pytest.fixture
def digest(built_home: Path) -> str | None:
    return Datasets(Home(built_home)).show("ann").digest


def work_elsewhere(office: Office, exchange: BuildExchange, sources: list[SourceRecording]) -> StageCounts:
    context = replace(exchange.context_there, counts=StageCounts())
    with office.out_of_sight():
        run_in_one_process(sources, context)
        assert isinstance(context.workspace, StoredWorkspace)
    return context.counts


def test_what_a_machine_makes_that_sees_nothing_is_what_one_process_makes(
    office: Office, store: ObjectStore, digest: str, built_home: Path
) -> None:
    with office.exchange(store) as exchange, exchange.carry(office.sources):
        work_elsewhere(office, exchange, office.sources)
        assert folder_here(exchange.context_there.stored).is_dir()
    assert office.rebuilt() == (digest, [0, 0, 0, 0])
    alone, here = (Datasets(Home(home)).show("ann") for home in (built_home, office.home.folder))
    here_clips, clips = ([replace(clip, audio=Path()) for clip in view.clips] for view in (here, alone))
    assert here_clips == clips
    assert not store.sizes(BUILDS_FOLDER)


def test_a_build_that_was_killed_comes_home_later(office: Office, store: ObjectStore) -> None:
    with ExitStack() as killed:
        exchange = killed.enter_context(office.exchange(store))
        killed.enter_context(exchange.carry(office.sources[:2]))
        work_elsewhere(office, exchange, office.sources[:2])
        never_ended = killed.pop_all()
    assert not (office.home.folder / CACHE_FOLDER).exists()
    remove_abandoned(store, office.home.folder)
    assert all(is_second_pass_done(source, office.context) for source in office.sources[:2])
    assert not store.sizes(BUILDS_FOLDER)
    never_ended.close()


def test_what_is_done_already_is_not_done_again_elsewhere(office: Office, store: ObjectStore) -> None:
    sources = office.sources[:2]
    run_in_one_process(sources, office.context)
    shutil.rmtree(office.home.folder / CACHE_FOLDER / "tokenize")
    with office.exchange(store) as exchange, exchange.carry(sources):
        sent = store.sizes(exchange.context_there.stored.files)
        assert not {f"{source.recording_id}.wav" for source in sources} & sent.keys()
        counts = work_elsewhere(office, exchange, sources)
    worked = {count.stage: count.count("worked") for count in counts.all()}
    assert (worked["decode"], worked["cut"], worked["tokenize"]) == (0, 0, 2)
    assert all(is_second_pass_done(source, office.context) for source in sources)


def test_a_recording_that_changed_or_was_damaged_on_its_way_is_refused(office: Office, store: ObjectStore) -> None:
    first = office.sources[0]
    with office.exchange(store) as exchange, exchange.carry([first]):
        (stored,) = (name for name in store.sizes(exchange.context_there.stored.files) if first.recording_id in name)
        store.write(f"{exchange.context_there.stored.files}/{stored}", b"something else")
        with pytest.raises(StorageDamaged, match="not what was stored"):
            exchange.context_there.decode(first)
    Path(first.path).write_bytes(b"another recording")
    with pytest.raises(StorageError, match="not what it was"), office.exchange(store) as exchange:
        exchange.carry([first]).__enter__()
    assert not store.sizes(BUILDS_FOLDER)


def test_a_storage_that_goes_away_stops_the_build(office: Office, store: ObjectStore, tmp_path: Path) -> None:
    shared, away = tmp_path / "shared", tmp_path / "unmounted"
    sources = pa.Table.from_pylist([source_row(source) for source in office.sources[:2]], schema=SOURCE_SCHEMA)
    with office.exchange(store) as exchange:
        there = replace(exchange.context_there, counts=StageCounts())
        carry = exchange.carry(office.sources[:2])
        carry.__enter__()
        shared.rename(away)
        assert all(row["problem"] for part in decode(sources, there) for row in part.to_pylist())
        assert "does not exist here" in there.counts.fault()
        assert not there.counts.begin("cut")
        with pytest.raises(StorageError, match="does not exist here"):
            carry.__exit__(None, None, None)
    away.rename(shared)
    remove_abandoned(store, office.home.folder)
    assert not store.sizes(BUILDS_FOLDER)


def test_a_build_that_is_cancelled_sends_nothing_more(office: Office, store: ObjectStore) -> None:
    BuildTable(office.home).request_cancel(office.job.name)
    office.heartbeat.beat()
    with pytest.raises(BuildCancelled), office.exchange(store) as exchange:
        exchange.carry(office.sources).__enter__()
    assert not store.sizes(BUILDS_FOLDER)


def test_a_whisper_travels_and_leftovers_of_other_builds_go(office: Office, store: ObjectStore, tmp_path: Path) -> None:
    weights = office.folder / "whisper.pt"
    weights.write_bytes(b"weights")
    source = TranscriberSource(path=weights, name="whisper", identity="weights")
    context = replace(office.context, transcriber=source)
    with stored_build(store, office.folder / "proof", {weights}, context, office.heartbeat) as stored:
        ended = folder_here(stored).with_name("ended")
        ended.mkdir(parents=True)
        workspace = open_workspace(office.home.folder, stored)
        assert isinstance(workspace, StoredWorkspace)
        with office.out_of_sight():
            fetched = workspace.transcriber(weights)
            assert (fetched.name, fetched.read_bytes()) == (weights.name, b"weights")
        assert fetched.is_relative_to(tmp_path / "elsewhere")
        assert not ended.exists()
