"""Every reason why a run cannot be, before any worker starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import RecordingDetails, RecordingView
from backend.dataset.storage.dataset_table import DatasetTable
from backend.errors import EncoreError
from backend.runs.errors import RunInvalid
from backend.runs.planning.plan import RunPlan
from backend.runs.planning.request import RunRequest
from backend.runs.runs import Runs
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.store.database import Database
from backend.store.home import Home
from backend.voices.consent import Consent
from tests.backend.runs.small_dataset import write_small_dataset
from tests.backend.runs.storage.test_records import record
from tests.golden import GOLDEN_CHECKPOINT
from training.data import code_rows
from training.data.code_rows import read_card, write_card

CONSENT = Consent.give("Ann")


@pytest.fixture
def runs(home: Path) -> Runs:
    return Runs(Home(home), num_cpus=4)


def plan(runs: Runs, dataset: Path | str | None, **changes: Any) -> RunPlan:
    """A plan that could be started; `changes` are of the request, or of its options."""
    fields = {"voice": "Ann", "model": str(GOLDEN_CHECKPOINT), "preset": "quick"}
    asked = {name: changes.pop(name, value) for name, value in fields.items()}
    return runs.plan(RunRequest(dataset=dataset, options=changes, **asked)).require_possible()


def test_a_run_is_planned_and_explained(runs: Runs, dataset: Path, home: Path) -> None:
    planned = plan(runs, "mine", num_workers=2, num_steps=7, num_held_out=1, num_standard=2)
    assert planned.data.estimate.num_steps == 7
    assert planned.job.output == home / "runs" / planned.run_id
    assert not planned.job.output.exists()
    assert [sentence.held_out for sentence in planned.data.evaluation.sentences] == [True, False, False]
    assert "7 steps" in planned.notes[0]
    assert "2 workers" in planned.notes[0]
    assert runs.list() == []


def test_options_override_the_preset(runs: Runs, dataset: Path) -> None:
    assert plan(runs, dataset, learning_rate=0.5).job.learning_rate == 0.5


def test_a_run_without_evaluation_needs_no_sentences(runs: Runs, dataset: Path) -> None:
    assert not plan(runs, dataset, evaluate=False, num_held_out=0, num_standard=0).launch.evaluate


def test_options_of_an_earlier_version_are_still_read(runs: Runs, dataset: Path) -> None:
    planned = plan(runs, dataset, judge=False, micro_batch_rows=700)
    assert not planned.launch.evaluate
    assert planned.job.micro_batch_tokens == 700


def test_a_plan_notes_that_no_clip_is_held_out(runs: Runs, home: Path) -> None:
    write_small_dataset(home / "datasets" / "all", num_clips=3, num_held_out=0)
    assert any("No clip is held out" in sentence for sentence in plan(runs, "all").notes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"preset": "standart"}, "Did you mean standard"),
        ({"lerning_rate": 1e-5}, "did you mean 'learning_rate'"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"num_workers": 5}, "5 workers need 5 CPUs, and this machine has 4"),
        ({"min_workers": 3, "num_workers": 2}, "Lower it"),
        ({"min_workers": 2, "num_workers": 4, "strategy": "fsdp2-hybrid"}, "Leave min_workers out, or use fsdp2"),
        (
            {"min_workers": 1, "num_workers": 2, "strategy": "zero3", "offload": "nvme", "nvme_folder": "/"},
            "Leave min_workers out, or offload to cpu",
        ),
        ({"output": "/elsewhere"}, "The run itself decides output"),
        ({"num_held_out": 0, "num_standard": 0}, "There is no sentence to evaluate with"),
        ({"max_failures": "often"}, "max_failures cannot be 'often'"),
        ({"strategy": "fsdp3"}, "strategy"),
        ({"strategy": "fsdp2-hybrid", "num_workers": 3}, "even number of workers"),
        ({"offload": "cpu"}, "offload needs an fsdp2 or zero strategy"),
        ({"offload": "cpu", "strategy": "fsdp2"}, "Use zero2 or zero3 to offload"),
        ({"offload": "cpu", "strategy": "fsdp2", "num_workers": 2, "min_workers": 1}, "or at least 2 workers"),
        ({"voice": "a/b"}, "cannot contain '/'"),
        ({"model": "/nowhere/at/all"}, "nowhere"),
    ],
)
def test_a_request_that_cannot_work_is_refused(runs: Runs, dataset: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(EncoreError) as refusal:
        plan(runs, dataset, **changes)
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unknown_dataset_is_answered_with_the_known_ones(runs: Runs, dataset: Path) -> None:
    with pytest.raises(EncoreError, match="There are: mine"):
        plan(runs, "yours")


@pytest.mark.parametrize(
    ("num_clips", "told"), [(0, "no accepted clips"), (1, "one accepted clip"), (2, "no clips to train on")]
)
def test_too_little_data_is_refused(runs: Runs, home: Path, num_clips: int, told: str) -> None:
    write_small_dataset(home / "datasets" / "few", num_clips=num_clips, num_held_out=2)
    with pytest.raises(EncoreError, match=told):
        plan(runs, "few")


def test_clips_that_do_not_fit_are_refused(runs: Runs, dataset: Path) -> None:
    with pytest.raises(EncoreError, match="None of the 10 clips"):
        plan(runs, dataset, max_clip_tokens=8)


def test_codes_of_another_model_are_refused(runs: Runs, dataset: Path) -> None:
    write_card(dataset, read_card(dataset).model_copy(update={"tokenizer_fingerprint": "other", "model": "theirs"}))
    with pytest.raises(EncoreError, match="was made with theirs, whose codes"):
        plan(runs, dataset)


def test_codes_of_an_earlier_version_of_the_model_are_refused(runs: Runs, dataset: Path) -> None:
    write_card(dataset, read_card(dataset).model_copy(update={"tokenizer_fingerprint": "other"}))
    with pytest.raises(EncoreError, match=r"made with an earlier version of .*Build the dataset again"):
        plan(runs, dataset)


def test_a_model_other_than_a_base_model_is_refused(runs: Runs, dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "custom"
    shutil.copytree(GOLDEN_CHECKPOINT, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tts_model_type": "custom_voice"}))
    with pytest.raises(EncoreError, match="only base ones can be fine-tuned"):
        plan(runs, dataset, model=str(folder))


def test_a_dataset_that_is_edited_between_plan_and_start_is_refused(runs: Runs, dataset: Path, home: Path) -> None:
    planned = plan(runs, dataset)
    write_card(dataset, read_card(dataset).model_copy(update={"digest": "another"}))
    with pytest.raises(EncoreError, match="was changed or deleted since this run was planned"):
        runs.start(planned, CONSENT)
    assert runs.list() == []
    assert not RunFolder.of(home, planned.run_id).path.exists()


def test_a_name_that_another_run_is_making_is_refused(runs: Runs, dataset: Path, home: Path) -> None:
    RunTable(Database(home)).add(record(voice="ANN"))
    with pytest.raises(EncoreError, match="is making a voice"):
        plan(runs, dataset)
    assert plan(runs, dataset, name_voice=False).job.voice == "Ann"


def test_a_run_without_consent_is_not_started(runs: Runs, dataset: Path, home: Path) -> None:
    planned = plan(runs, dataset)
    with pytest.raises(EncoreError, match="consent of the person"):
        runs.start(planned, None)
    assert not RunFolder.of(home, planned.run_id).path.exists()


def test_a_plan_with_problems_is_shown_and_not_started(runs: Runs, dataset: Path, home: Path) -> None:
    request = RunRequest(dataset=dataset, voice="Ann", model=str(GOLDEN_CHECKPOINT), options={"num_workers": 5})
    planned = runs.plan(request)
    assert planned.data.estimate.num_steps > 0
    assert len(planned.problems) == 1
    with pytest.raises(EncoreError, match="5 workers need 5 CPUs"):
        runs.start(planned, CONSENT)
    assert runs.list() == []


def test_the_preset_is_chosen_by_the_amount_of_speech(runs: Runs, dataset: Path) -> None:
    assert plan(runs, dataset, preset=None).data.preset == "quick"


def adapter_request(dataset: Path | None, method: str = "auto", **options: Any) -> RunRequest:
    return RunRequest(
        dataset=dataset, voice="Ann", model=str(GOLDEN_CHECKPOINT), preset="quick", method=method, options=options
    )


def test_all_weights_are_trained_where_they_fit(runs: Runs, dataset: Path) -> None:
    planned = runs.plan(adapter_request(dataset))
    assert (planned.job.method, planned.data.full_bytes) == ("full", None)
    assert not any("adapter" in note for note in planned.notes)


def test_an_adapter_is_trained_where_all_weights_do_not_fit(
    runs: Runs, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runs.plan(adapter_request(dataset, "full")).data.estimate.memory.total
    monkeypatch.setattr("backend.runs.planning.plan._worker_bytes", lambda *given: whole - 1)
    planned = runs.plan(adapter_request(dataset)).require_possible()
    assert (planned.job.method, planned.data.full_bytes) == ("lora", whole)
    assert planned.data.estimate.memory.state.total < whole / 2
    assert planned.data.estimate.disk_bytes > 0
    # The table of strategies is of what will be trained.
    assert min(cell.memory.state.total for cell in planned.data.memory if cell.num_workers == 1) < whole / 2
    assert any(note.startswith("All weights would need ") for note in planned.notes)
    assert runs.plan(adapter_request(dataset, "full")).job.method == "full"
    assert runs.plan(adapter_request(dataset, train_text_embedding=True)).job.method == "full"


def test_an_adapter_that_is_asked_for_is_planned_and_explained(runs: Runs, dataset: Path) -> None:
    planned = runs.plan(adapter_request(dataset, "lora", lora_layers=["attention", "mlp", "code-predictor"]))
    assert planned.data.full_bytes is None
    told = "Trained is an adapter of rank 16 on attention, mlp and code-predictor; the weights of the base model stay"
    assert any(note.startswith(told) for note in planned.notes)
    # A preset's rates are those of small models, and one that is given stays.
    whole = runs.plan(adapter_request(dataset, "full"))
    assert (planned.job.learning_rate, whole.job.learning_rate) == (1e-3, 6e-4)
    assert runs.plan(adapter_request(dataset, "lora", learning_rate=0.5)).job.learning_rate == 0.5


def test_an_option_of_adapters_asks_for_one(runs: Runs, dataset: Path) -> None:
    assert runs.plan(adapter_request(dataset, lora_rank=8)).job.lora.rank == 8
    with pytest.raises(EncoreError, match="lora_rank is of adapters, and method full trains none"):
        runs.plan(adapter_request(dataset, "full", lora_rank=8))
    assert runs.plan(adapter_request(None, "lora")).job.method == "lora"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lora_rank": 0}, "lora_rank"),
        ({"lora_rank": 5000}, "lora_rank"),
        ({"lora_dropout": 1.0}, "lora_dropout"),
        ({"lora_layers": []}, "lora_layers"),
        ({"lora_layers": ["mlp", "mlp"]}, "names the same layers twice"),
        ({"lora_layers": ["heads"]}, "lora_layers"),
        ({"train_text_embedding": True}, "train_text_embedding needs method full"),
    ],
)
def test_an_adapter_that_cannot_be_is_refused(runs: Runs, dataset: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(EncoreError, match=told) as refusal:
        runs.plan(adapter_request(dataset, "lora", **options))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "standart"}, "Did you mean standard"),
        ({"lerning_rate": 1e-5}, "did you mean 'learning_rate'"),
        ({"num_workers": 5}, "5 workers need 5 CPUs"),
        ({"voice": "a/b"}, "cannot contain '/'"),
        ({"model": "/nowhere/at/all"}, "nowhere"),
    ],
)
def test_a_request_is_refused_before_its_dataset_is_built(runs: Runs, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EncoreError, match=message):
        plan(runs, None, **changes)


def test_without_a_dataset_the_rest_is_planned(runs: Runs) -> None:
    planned = plan(runs, None)
    assert planned.data is None
    assert planned.notes == ()


def test_the_data_is_read_once(runs: Runs, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read_table = code_rows.pq.read_table
    monkeypatch.setattr(code_rows.pq, "read_table", lambda *given, **how: reads.append(1) or read_table(*given, **how))
    plan(runs, dataset)
    assert len(reads) == 1


def test_learning_from_what_encore_made_is_asked_about(runs: Runs, dataset: Path, home: Path) -> None:
    made = RecordingView(
        name="a/made.wav",
        recording_id="x",
        seconds=2.0,
        num_clips=1,
        problem="",
        details=RecordingDetails(made_by_encore=True),
    )
    table = DatasetTable(Home(home))
    table.save_job(BuildJob.parse("mine", [dataset]))
    table.save_recordings("mine", [made])
    table.mark_rows("mine", are_current=True)
    with pytest.raises(RunInvalid, match=r"Encore itself made made\.wav"):
        plan(runs, "mine")
    request = RunRequest(
        dataset="mine", voice="Ann", model=str(GOLDEN_CHECKPOINT), preset="quick", accept_synthetic=True
    )
    assert runs.plan(request).require_possible().data is not None


def test_changes_that_are_not_applied_are_not_learnt_without(runs: Runs, dataset: Path, home: Path) -> None:
    table = DatasetTable(Home(home))
    table.save_job(BuildJob.parse("mine", [dataset]))
    table.mark_rows("mine", are_current=True)
    request = RunRequest(dataset="mine", voice="Ann", model=str(GOLDEN_CHECKPOINT), preset="quick")
    assert runs.plan(request).problems == ()
    # As every edit does.
    table.update_clips("mine", [], [])
    (told,) = runs.plan(request).problems
    assert told.startswith("Clips of the dataset mine were changed, and these changes are not applied yet")
    assert "`app.py dataset apply mine`" in told
    for named in ("mine", dataset):
        asked = request.model_copy(update={"dataset": named, "accept_synthetic": True})
        with pytest.raises(RunInvalid, match="not applied yet"):
            runs.start(runs.plan(asked), CONSENT)
    assert runs.list() == []
    table.mark_rows("mine", are_current=True)
    assert runs.plan(request).require_possible().data is not None
