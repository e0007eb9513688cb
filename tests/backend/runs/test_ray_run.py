"""A real fine-tune on a local Ray, hurt in every way a machine can hurt it, and still right to the last step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from backend.runs.planning.request import RunRequest
from backend.runs.process.supervisor_process import end_owner
from backend.runs.runs import Runs
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.store.trash import Trash
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.backend.cluster.listening import is_loopback, listening_sockets
from tests.golden import GOLDEN_CHECKPOINT
from tests.object_server import BUCKET, object_server, variables
from training.data.code_rows import ROWS_FILE, read_card, write_card
from training.export import PROVENANCE_FILE
from training.job import FineTuneJob
from training.model.voice_model import VoiceModel
from training.run_checkpoints import list_checkpoints
from training.storage.folders import describe, describe_hashed, list_folders, read_manifest
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

pytestmark = pytest.mark.ray

MORE_STEPS_THAN_THERE_IS_TIME_FOR = 1500
CHECKPOINT_EVERY = 4
REPOSITORY = Path(__file__).parents[3]
SAME_EVERYWHERE = ("talker_loss", "code_predictor_loss", "gradient_norm", "learning_rate")
DEADLINE_SECONDS = 400.0
"""For each phase; on a quiet machine none takes longer than half a minute."""
RELEASED_SECONDS = 150.0
"""From a cancel until nothing of the run is left: ten on a quiet machine, and minutes where Ray is left to clean up."""


@pytest.fixture
def runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    # Ray is polite to everybody else on the machine by default, which on a busy one takes minutes.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # As many as it has workers: what a killed trainer held must be free for the next.
    runs = Runs(Home(home), num_cpus=2)
    yield runs
    for run in runs.list():
        end_owner(run, RunFolder.of(home, run.id))


def session_of(leader: int) -> list[psutil.Process]:
    """Everything a supervisor started: its Ray, the workers, itself."""

    def belongs(process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.Error):
            return False  # it has just ended

    return [process for process in psutil.process_iter() if belongs(process)]


def processes_of(leader: int, name: str) -> list[psutil.Process]:
    found = []
    for process in session_of(leader):
        try:
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(runs: Runs, run_id: str, reached: Callable[[RunRecord], bool]) -> RunRecord:
    give_up = time.monotonic() + DEADLINE_SECONDS
    while not reached(run := runs.get(run_id)):
        told = f"{run.state} at step {run.step}: {run.message}\n{runs.log(run_id)[-4000:]}"
        assert time.monotonic() < give_up, f"still {told}"
        assert run.state is not RunState.FAILED, told
        time.sleep(0.05)
    return run


def newest_checkpoint(runs: Runs, run_id: str) -> int:
    found = list_checkpoints(runs.folder(run_id))
    return found[-1].progress.step if found else 0


def wait_for_steps_of(runs: Runs, run_id: str, attempt: int) -> None:
    """Until it trains again, by what its workers wrote: rows of earlier attempts are there all the time."""
    written = runs.folder(run_id) / "metrics"
    # The first line says how many workers there are.
    wait_until(
        runs,
        run_id,
        lambda run: any(path.read_text().count("\n") > 1 for path in written.glob(f"{attempt:04}-*.jsonl")),
    )


def train_unheard(runs: Runs, run_id: str) -> None:
    """Nothing of it listens to other machines, nor does the store in which PyTorch's workers find each other."""
    leader = wait_until(runs, run_id, lambda run: run.state is RunState.RUNNING).process_id
    workers = processes_of(leader, "RayTrainWorker")
    # Ray's own, the store of the first, and those of the group.
    assert len(listening_sockets(workers)) > 2 * len(workers) == 4
    assert not [socket for socket in listening_sockets(session_of(leader)) if not is_loopback(socket[1])]


def lose_a_worker(runs: Runs, run_id: str) -> None:
    run = wait_until(runs, run_id, lambda run: newest_checkpoint(runs, run_id) > 0)
    dataset = FineTuneJob.read(runs.folder(run_id) / "job.json").dataset
    # Somebody edits it; the run goes on with what it was planned with.
    write_card(dataset, read_card(dataset).model_copy(update={"digest": "another"}))
    (dataset / ROWS_FILE).unlink()
    rows = runs.folder(run_id) / "dataset" / ROWS_FILE
    # What Ray Data has read once it hands out again, with no file there any more.
    rows.rename(rows.with_suffix(".away"))
    processes_of(run.process_id, "RayTrainWorker")[0].send_signal(signal.SIGKILL)
    wait_until(runs, run_id, lambda run: any("lost" in event.sentence for event in runs.events(run_id)))
    wait_until(runs, run_id, lambda run: any("continues" in event.sentence[:20] for event in runs.events(run_id)))
    step = runs.get(run_id).step
    wait_until(runs, run_id, lambda run: run.step > step)
    rows.with_suffix(".away").rename(rows)


def lose_the_driver(runs: Runs, run_id: str) -> None:
    (driver,) = processes_of(runs.get(run_id).process_id, "ray::Driver")
    driver.kill()
    wait_until(runs, run_id, lambda run: run.attempt == 2)
    assert any("driver of the training was lost" in event.sentence for event in runs.events(run_id))
    wait_for_steps_of(runs, run_id, attempt=2)
    train_unheard(runs, run_id)


def lose_the_supervisor(runs: Runs, run_id: str) -> None:
    leader = runs.get(run_id).process_id
    os.kill(leader, signal.SIGKILL)
    wait_until(runs, run_id, lambda run: not runs.is_looked_after(run_id))
    assert runs.get(run_id).state is RunState.RUNNING
    assert runs.reconcile() == [run_id]
    assert session_of(leader) == []
    resumed = wait_until(runs, run_id, lambda run: run.state is RunState.RUNNING)
    assert resumed.attempt == 3
    assert resumed.process_id != leader
    wait_for_steps_of(runs, run_id, attempt=3)


def cancel(runs: Runs, run_id: str) -> None:
    leader = runs.get(run_id).process_id
    began = time.monotonic()
    runs.cancel(run_id)
    cancelled = wait_until(runs, run_id, lambda run: not run.state.is_active)
    assert cancelled.state is RunState.CANCELLED
    wait_until(runs, run_id, lambda run: not session_of(leader))
    assert time.monotonic() - began < RELEASED_SECONDS
    kept = newest_checkpoint(runs, run_id)
    # Workers that did not get to their last checkpoint in time leave the one before, whose writing may end a step late.
    assert kept >= cancelled.step - CHECKPOINT_EVERY - 1


def options_of(num_steps: int) -> dict[str, int]:
    return {"num_steps": num_steps, "checkpoint_every": CHECKPOINT_EVERY, "num_held_out": 1, "num_standard": 0}


def start(runs: Runs, num_steps: int) -> str:
    options = {"num_workers": 2, **options_of(num_steps)}
    request = RunRequest(dataset="mine", voice="Ann", model=str(GOLDEN_CHECKPOINT), preset="quick", options=options)
    return runs.start(runs.plan(request), Consent.give("Ann"))


def start_from_an_app_that_is_killed(runs: Runs, home: Path, num_steps: int) -> str:
    command = [sys.executable, "app.py", "finetune", "mine", "--voice", "Ann", "--model", str(GOLDEN_CHECKPOINT)]
    command += ["--preset", "quick", "--workers", "2", "--consent", "own-voice", "--consent-by", "Ann"]
    for name, value in options_of(num_steps).items():
        command += ["--set", f"{name}={value}"]
    with subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | {"ENCORE_HOME": str(home)}) as app:
        give_up = time.monotonic() + DEADLINE_SECONDS
        while not any(run.state is not RunState.QUEUED for run in runs.list()):
            assert app.poll() is None, "the command ended"
            assert time.monotonic() < give_up
            time.sleep(0.05)
        app.kill()
    return runs.list()[0].id


def test_a_run_survives_whatever_is_killed_and_obeys_a_cancel(runs: Runs, dataset: Path, home: Path) -> None:
    run_id = start_from_an_app_that_is_killed(runs, home, MORE_STEPS_THAN_THERE_IS_TIME_FOR)
    train_unheard(runs, run_id)
    lose_a_worker(runs, run_id)
    lose_the_driver(runs, run_id)
    lose_the_supervisor(runs, run_id)
    cancel(runs, run_id)
    steps = [record.step for record in runs.metrics(run_id)]
    assert steps == list(range(1, len(steps) + 1))
    assert all(record.measures["talker_loss"] > 0 for record in runs.metrics(run_id))
    assert runs.get(run_id).state.can_resume


def test_a_run_whose_ray_is_killed_as_it_starts_is_started_again(runs: Runs, dataset: Path) -> None:
    """It said that it was starting for ever, and could not be resumed."""
    run_id = start(runs, num_steps=CHECKPOINT_EVERY)
    leader = wait_until(runs, run_id, lambda run: run.process_id is not None).process_id
    # Earlier than this the start itself notices, and is repeated.
    wait_until(runs, run_id, lambda run: "Started a local Ray instance" in runs.log(run_id))
    assert runs.get(run_id).state is RunState.STARTING
    (raylet,) = processes_of(leader, "raylet/raylet")
    raylet.kill()
    done = wait_until(runs, run_id, lambda run: not run.state.is_active)
    assert done.state is RunState.DONE
    assert any("It is started again." in event.sentence for event in runs.events(run_id))
    assert [record.step for record in runs.metrics(run_id)] == list(range(1, CHECKPOINT_EVERY + 1))


def losses_under_torchrun(job: FineTuneJob, folder: Path) -> list[list[float]]:
    """What the same job reports where no Ray is."""
    again = job.model_copy(update={"output": folder / "torchrun"})
    again.write(folder / "again.json")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.num_workers}"]
    command += ["-m", "training.worker", str(folder / "again.json")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (again.output / "log.jsonl").read_text().splitlines()]
    return [[line[name] for name in SAME_EVERYWHERE] for line in lines]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The object storage of everything that is started."""
    with object_server() as port:
        for name, value in variables(port).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        location = f"s3://{BUCKET}/encore"
        monkeypatch.setenv("ENCORE_STORAGE", location)
        yield ObjectStore(StorageLocation.parse(location))


def test_a_run_ends_as_an_evaluated_voice(
    runs: Runs, dataset: Path, home: Path, tmp_path: Path, bucket: ObjectStore
) -> None:
    run_id = start(runs, num_steps=2 * CHECKPOINT_EVERY)
    done = wait_until(runs, run_id, lambda run: not run.state.is_active)
    assert done.state is RunState.DONE
    assert [record.step for record in runs.metrics(run_id)] == list(range(1, 2 * CHECKPOINT_EVERY + 1))
    told = [[record.measures[name] for name in SAME_EVERYWHERE] for record in runs.metrics(run_id)]
    alone = losses_under_torchrun(FineTuneJob.read(runs.folder(run_id) / "job.json"), tmp_path)
    assert [pytest.approx(step, rel=1e-6) for step in told] == alone
    checkpoints = list_checkpoints(runs.folder(run_id))
    assert list_folders(bucket, f"runs/{run_id}/checkpoints") == [found.folder.name for found in checkpoints]
    for found in checkpoints:
        stored = read_manifest(bucket, f"runs/{run_id}/checkpoints/{found.folder.name}")
        assert stored is not None
        assert stored == describe_hashed(found.folder)
    assert read_manifest(bucket, f"runs/{run_id}/export") == describe(runs.folder(run_id) / "export")
    assert bucket.sizes(f"runs/{run_id}/ray"), "Ray Train's own notes are there too"
    judged = {point.name: point for point in runs.checkpoints(run_id) if point.scores is not None}
    assert judged.keys() == {"base", "step-00000004", "step-00000008"}
    for take in judged[done.best_checkpoint].takes:
        assert (runs.folder(run_id) / take.file).read_bytes()[:4] == b"RIFF"
    assert done.verdict
    assert "<svg" in (runs.folder(run_id) / "report.html").read_text()
    assert not (runs.folder(run_id) / "dataset").exists()
    origin = json.loads((runs.folder(run_id) / "export" / "base" / PROVENANCE_FILE).read_text())
    assert origin["job"]["dataset"] == str(dataset)
    voice = Voices(Home(home)).get("Ann")
    assert voice.run_id == run_id
    assert VoiceModel.load(voice.variants["custom_voice"], precision="fp32").config.talker.spk_id.keys() == {"ann"}
    deleted = runs.delete(run_id)
    assert runs.list() == []
    Trash(Home(home)).purge(deleted.id)
    assert not runs.folder(run_id).exists()
    assert bucket.sizes(f"runs/{run_id}") == {}
