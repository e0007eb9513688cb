"""Several speakers in one run: planned, agreed to by each, judged one by one, and kept as a voice each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from app import main
from backend.comparisons.contenders import keys_of, list_sides
from backend.errors import EncoreError
from backend.evaluation.evaluate import evaluate, load_scorers
from backend.evaluation.scores import summarize
from backend.runs.errors import RunInvalid
from backend.runs.planning.plan import RunPlan
from backend.runs.planning.request import RunRequest
from backend.runs.planning.speakers import SpeakerRequest
from backend.runs.process.conclude_run import conclude
from backend.runs.runs import Runs, _store
from backend.runs.storage.records import BASE
from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.consent import Consent, consent_of_several_missing
from backend.voices.errors import ConsentMissing
from backend.voices.registry import Voices
from tests.backend.runs.small_dataset import write_small_dataset
from tests.backend.runs.storage.test_records import record
from tests.golden import GOLDEN_CHECKPOINT
from tests.training.strategy_worker import RecordingContext
from training.export import export_checkpoint
from training.job import FineTuneJob
from training.model.checkpoint.reading import read_config
from training.model.voice_model import VoiceModel
from training.run_checkpoints import list_checkpoints
from training.worker import run_worker

NAMES = ("ann", "ben", "carl")
CONSENTS = {name: Consent.give(name.title()) for name in NAMES}
OPTIONS = {"num_steps": 2, "checkpoint_every": 2, "num_held_out": 1, "num_standard": 1}


def write_datasets(home: Path) -> None:
    for number, name in enumerate(NAMES):
        write_small_dataset(home / "datasets" / name, num_clips=(12, 4, 3)[number], num_held_out=1, seed=number)


def request(*names: str, **changes: object) -> RunRequest:
    first, *more = names
    fields = {"voice": first, "model": str(GOLDEN_CHECKPOINT), "preset": "quick", "options": OPTIONS}
    speakers = tuple(SpeakerRequest(dataset=name, voice=name) for name in more)
    return RunRequest(**{"dataset": first, "more_speakers": speakers, **fields, **changes})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    write_datasets(home)
    return home


@pytest.fixture(scope="module")
def runs(home: Path) -> Runs:
    return Runs(Home(home), num_cpus=2)


@pytest.fixture(scope="module")
def plan(runs: Runs) -> RunPlan:
    return runs.plan(request(*NAMES)).require_possible()


@pytest.fixture(scope="module")
def concluded(home: Path, runs: Runs, plan: RunPlan) -> RunFolder:
    """A run that was trained, judged and concluded in this process."""
    folder, opened = RunFolder.of(home, plan.run_id), Home(home)
    _store(plan, plan.data, folder)
    rows, job = RunTable(opened.database), FineTuneJob.read(folder.job)
    rows.add(
        record(
            plan.run_id,
            voice=", ".join(NAMES),
            dataset=", ".join(NAMES),
            state=RunState.EVALUATING,
            consent=CONSENTS["ann"],
            consents=CONSENTS,
            job=job.model_dump(mode="json"),
        )
    )
    run_worker(job.with_datasets(folder.datasets(3)), RecordingContext(0, 1))
    (newest,) = list_checkpoints(folder.path)
    evaluation = plan.data.evaluation
    scorers = load_scorers(evaluation, (), None)
    rows.add_checkpoint(plan.run_id, BASE, 0)
    rows.add_checkpoint(plan.run_id, newest.folder.name, 2)
    export_checkpoint(newest, torch.tensor(evaluation.embeddings), folder.path / "evaluated", "base")
    for name, model in ((BASE, GOLDEN_CHECKPOINT), (newest.folder.name, folder.path / "evaluated")):
        takes = evaluate(VoiceModel.load(model, precision="fp32"), evaluation, scorers, folder.takes / name)
        rows.add_evaluation(plan.run_id, name, takes, summarize(takes))
    conclude(opened, plan.run_id)
    return folder


def test_a_plan_says_who_learns_and_how_much_each_is_heard(plan: RunPlan) -> None:
    assert [speaker.name for speaker in plan.job.speakers] == list(NAMES)
    assert plan.data.dataset == "ann, ben, carl"
    minutes = plan.data.speakers
    assert [one.voice for one in minutes] == list(NAMES)
    assert sum(one.per_epoch for one in minutes) == pytest.approx(sum(one.minutes for one in minutes))
    assert minutes[0].per_epoch < minutes[0].minutes
    assert minutes[2].per_epoch > minutes[2].minutes
    (note,) = (note for note in plan.notes if "speakers learn in one run" in note)
    assert "3 speakers learn in one run. ann: 0." in note
    spoken = plan.data.evaluation.speakers
    assert [one.voice for one in spoken] == list(NAMES)
    assert [[sentence.held_out for sentence in one.sentences] for one in spoken] == [[True, False]] * 3


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (request("ann", "ann"), "The dataset ann is named twice"),
        (
            request("ann", more_speakers=(SpeakerRequest(dataset="ben", voice="ANN"),)),
            "Two speakers would be called 'ANN'",
        ),
        (request("ann", "dora"), "There is no dataset 'dora'. There are: ann, ben, carl."),
        (request("ann", options={"more_speakers": []}), "The run itself decides more_speakers"),
    ],
)
def test_what_cannot_be_planned_is_refused(runs: Runs, asked: RunRequest, told: str) -> None:
    with pytest.raises(EncoreError) as refusal:
        runs.plan(asked)
    assert told in str(refusal.value)


def test_of_unnamed_voices_the_datasets_give_the_names(runs: Runs) -> None:
    speakers = (SpeakerRequest(dataset="ben"),)
    assert [one.voice for one in runs.plan(request("ann", voice=None, more_speakers=speakers)).job.speakers] == [
        "ann",
        "ben",
    ]


def test_every_speaker_has_to_have_agreed(tmp_path: Path) -> None:
    """Datasets of this test know no recordings, so that each has the consent that is given with it, or none."""
    write_datasets(tmp_path)
    runs = Runs(Home(tmp_path), num_cpus=2)
    plan = runs.plan(request(*NAMES)).require_possible()
    assert runs.needs_consent(plan)
    for given in (None, Consent.give("Ann")):
        with pytest.raises(ConsentMissing, match=r"^ann, ben and carl have no consent yet, and every speaker of a run"):
            runs.start(plan, given)
    assert runs.list() == []
    assert not runs.folder(plan.run_id).exists()


def test_who_alone_has_not_agreed_is_named() -> None:
    """For one the consent may be given with the run; it would be a lie for two."""
    assert str(consent_of_several_missing(["carl"])) == (
        "carl has no consent yet, and every speaker of a run needs their own. Give --consent and --consent-by for carl."
    )


def test_each_speaker_has_a_copy_of_its_rows(runs: Runs, plan: RunPlan, concluded: RunFolder) -> None:
    # Needed until the run is done, and not longer.
    assert not any(folder.exists() for folder in concluded.datasets(3))
    assert [folder.name for folder in concluded.datasets(3)] == ["dataset", "dataset-2", "dataset-3"]


def test_data_that_was_changed_since_is_not_learnt_from(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    plan = Runs(Home(tmp_path), num_cpus=2).plan(request("ann", "ben"))
    (tmp_path / "datasets" / "ben" / "dataset.json").unlink()
    folder = RunFolder.of(tmp_path, plan.run_id)
    with pytest.raises(RunInvalid, match="The dataset ben was changed or deleted since this run was planned"):
        _store(plan, plan.data, folder)
    assert not folder.path.exists()


def test_a_voice_of_each_is_kept_with_its_own_consent_and_scores(home: Path, runs: Runs, concluded: RunFolder) -> None:
    run = runs.get(concluded.path.name)
    assert (run.state, run.message) == (
        RunState.DONE,
        "The voices ann, ben, carl speak with checkpoint step-00000002.",
    )
    voices = {voice.name: voice for voice in Voices(Home(home)).list()}
    assert set(voices) == set(NAMES)
    scores = next(point.scores for point in runs.checkpoints(run.id) if point.name == run.best_checkpoint)
    for name, voice in voices.items():
        assert voice.consent == CONSENTS[name]
        assert list(read_config(voice.variants["custom_voice"]).talker.spk_id) == [name]
        assert voice.provenance["scores"] == scores.speakers[name].model_dump(mode="json")
        assert voice.provenance["speakers"] == list(NAMES)
        VoiceModel.load(voice.variants["custom_voice"], precision="fp32", device="cpu")
    rows = [read_config(voice.variants["custom_voice"]).talker.spk_id[name] for name, voice in voices.items()]
    assert len(set(rows)) == 3
    assert list(read_config(concluded.export / "custom_voice").talker.spk_id) == list(NAMES)


def test_voices_share_the_weights_and_outlive_each_other(home: Path, concluded: RunFolder) -> None:
    voices = Voices(Home(home))
    files = [voices.get(name).variants["custom_voice"] / "model.safetensors" for name in NAMES]
    assert len({file.stat().st_ino for file in files}) == 1
    voices.trash.purge(voices.delete("ann").id)
    assert not files[0].exists()
    VoiceModel.load(voices.get("ben").variants["custom_voice"], precision="fp32", device="cpu")


def test_report_and_command_show_each_speaker_and_who_sounds_like_whom(
    home: Path, runs: Runs, concluded: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = concluded.path.name
    page = runs.write_report(run_id).read_text()
    assert "<h2>Each speaker</h2>" in page
    assert page.count('<table class="alike">') == 2
    assert "Compared by the model&#39;s own encoder" in page
    monkeypatch.setenv("ENCORE_HOME", str(home))
    assert main(["runs", "show", run_id]) == 0
    shown = capsys.readouterr().out
    assert "who sounds like whom" in shown
    assert "    carl: num takes 2" in shown
    assert "The worst voice is" in shown


def test_several_speakers_are_compared_as_voices(home: Path, runs: Runs, concluded: RunFolder) -> None:
    run = runs.get(concluded.path.name)
    voice = Voices(Home(home)).get("carl")
    sides = list_sides([voice], [(run, runs.checkpoints(run.id))], [])
    assert {side.source for side in sides} == {"voice"}
    assert all(keys_of(voice, side) == (side.key,) for side in sides)


def test_one_dataset_may_be_named_without_its_voice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "a", "b", "--voice", "Ann", "--consent", "synthetic", "--consent-by", "x"]) == 2
    assert "There are 2 datasets and 1 voices. Give --voice once for each dataset" in capsys.readouterr().err
