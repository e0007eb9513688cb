"""Checkpoints of a run are written elsewhere: an adapter by itself or merged, the best one or another."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import main
from backend.errors import EncoreError
from backend.runs.planning.request import RunRequest
from backend.runs.process.conclude_run import conclude
from backend.runs.runs import Runs
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.backend.runs.small_dataset import write_small_dataset
from tests.backend.runs.storage.test_records import record
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.strategy_worker import RecordingContext
from training.data.code_rows import ROWS_FILE, read_code_rows
from training.job import ADAPTER_FOLDER
from training.model.checkpoint.hashes import find_damage
from training.model.checkpoint.names import ADAPTER_FILE
from training.model.voice_model import VoiceModel
from training.worker import run_worker

CHECKPOINTS = ["step-00000001", "step-00000002"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def runs(home: Path) -> Runs:
    """With a run of two checkpoints, trained in this process and concluded without an evaluation."""
    write_small_dataset(home / "datasets" / "mine", styles=("calm", "", "excited"))
    opened = Home(home)
    runs = Runs(opened, num_cpus=2)
    options = {"num_steps": 2, "checkpoint_every": 1, "lora_rank": 4}
    request = RunRequest(dataset="mine", voice="Ann", model=str(GOLDEN_CHECKPOINT), preset="quick", options=options)
    plan = runs.plan(request).require_possible()
    folder = RunFolder.of(home, "one")
    job = plan.job.model_copy(update={"output": folder.path})
    run_worker(job, RecordingContext(0, 1))
    job.write(folder.job)
    folder.launch.write_text(plan.launch.model_dump_json())
    folder.evaluation_plan.write_text(plan.data.evaluation.model_dump_json())
    rows = RunTable(opened.database)
    rows.add(
        record(state=RunState.EVALUATING, consent=Consent.give("Ann"), job=job.model_dump(mode="json"), num_steps=2)
    )
    conclude(opened, "one")
    return runs


def test_a_run_with_an_adapter_ends_as_any_other_does(runs: Runs, home: Path) -> None:
    run = runs.get("one")
    assert (run.state, run.best_checkpoint) == (RunState.DONE, CHECKPOINTS[-1])
    voice = Voices(Home(home)).get("Ann")
    assert voice.provenance["trained"] == "an adapter of rank 4 on attention and mlp"
    assert voice.variants == {}
    assert voice.modes[0] == "fine-tuned"
    assert sum(path.stat().st_size for path in voice.folder.rglob("*") if path.is_file()) < 300_000
    assert (voice.reference is not None, find_damage(voice.folder)) == (True, [])
    for kind in ("custom_voice", "base"):
        VoiceModel.load(RunFolder.of(home, "one").export / kind, precision="fp32", device="cpu")
    exported = RunFolder.of(home, "one").export
    assert (exported / ADAPTER_FOLDER / ADAPTER_FILE).stat().st_size < 100_000
    assert "an adapter of rank 4 on attention and mlp" in runs.write_report("one").read_text()


def test_the_voice_can_be_told_to_speak_in_the_styles_of_its_dataset(home: Path) -> None:
    voice = Voices(Home(home)).get("Ann")
    texts = {row.text: row.style for row in read_code_rows(home / "datasets" / "mine" / ROWS_FILE) if not row.held_out}
    assert [style.name for style in voice.styles] == ["calm", "excited"]
    for style in voice.styles:
        assert voice.clip_of(style).is_file()
        assert texts[style.transcript or ""] == style.name


def test_an_adapter_is_exported_by_itself_or_merged(runs: Runs, tmp_path: Path) -> None:
    (adapter,) = runs.export("one", tmp_path / "adapter")
    assert find_damage(adapter) == []
    earlier = runs.export("one", tmp_path / "earlier", CHECKPOINTS[0])[0] / ADAPTER_FILE
    assert earlier.read_bytes() != (adapter / ADAPTER_FILE).read_bytes()
    merged = runs.export("one", tmp_path / "merged", merged=True)
    assert {path.relative_to(tmp_path).as_posix() for path in merged} == {"merged/custom_voice", "merged/base"}
    assert sorted(path.name for path in (tmp_path / "merged").iterdir()) == ["base", "custom_voice"]
    kinds = {VoiceModel.load(folder, precision="fp32", device="cpu").config.tts_model_type for folder in merged}
    assert kinds == {"custom_voice", "base"}


def test_what_cannot_be_exported_is_refused(runs: Runs, tmp_path: Path) -> None:
    for wrong, told in (("../../one", "has no checkpoint"), ("step-00000009", "It has: step-00000001, step-00000002")):
        with pytest.raises(EncoreError, match=told):
            runs.export("one", tmp_path / "new", wrong)
    with pytest.raises(EncoreError, match="exists already"):
        runs.export("one", tmp_path)


def test_the_command_prints_what_it_wrote(
    runs: Runs, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENCORE_HOME", str(home))
    capsys.readouterr()
    assert main(["runs", "export", "one", "--output", str(tmp_path / "out"), "--merged"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / kind) for kind in ("custom_voice", "base")]
    assert main(["runs", "export", "one", "--output", str(tmp_path / "out")]) == 2
    assert "exists already" in capsys.readouterr().err
