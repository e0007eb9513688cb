"""Several speakers in one run: the same learning on any number of workers, and exports that name all of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_job, make_rows, run_stages, stage, task, write_dataset
from tests.training.recorded_runs import FEW_STEPS, HALF, Runs, assert_same_learning
from tests.training.strategy_worker import RecordingContext
from training.data.code_rows import ROWS_FILE, read_code_rows
from training.errors import JobInvalid, PreflightError
from training.export import EXPORTS_FOLDER, PROVENANCE_FILE, export_all, read_weights
from training.job import ADAPTER_FOLDER, FineTuneJob
from training.job_data import plan_data
from training.model.checkpoint.names import ADAPTER_FILE
from training.model.checkpoint.reading import read_config
from training.model.checkpoint.writing import ADAPTER_CONFIG_FILE
from training.model.generation.take_request import VoicePrompt
from training.model.voice_model import VoiceModel
from training.preflight import model_problems
from training.run_checkpoints import list_checkpoints
from training.worker import run_worker

NAMES = ("Ann", "Ben", "Carl")
FRAMES = ((9, 16, 23, 30, 12, 18, 25, 31, 14, 20), (11, 27, 10), (22, 15, 19, 8))
ADAPTER = {"method": "lora", "lora_rank": 2, "learning_rate": 1e-2}


def speakers(folder: Path) -> dict[str, object]:
    """The fields of a job that name three speakers, whose datasets are made in a folder."""
    for number, frames in enumerate(FRAMES):
        rows = make_rows(frames, num_held_out=1, seed=number)
        write_dataset(folder / f"dataset-{number}", rows, digest=f"digest {number}")
    first, *more = (
        {"voice": name, "dataset": folder / f"dataset-{number}", "dataset_digest": f"digest {number}"}
        for number, name in enumerate(NAMES)
    )
    return {**first, "more_speakers": more}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("speakers"))
    runs.results.mkdir()
    fields = speakers(runs.folder)

    def job(name: str, strategy: str = "ddp", num_workers: int = 1, **changes: object) -> FineTuneJob:
        return runs.job(name, strategy, num_workers, **{**fields, "num_steps": FEW_STEPS, **changes})

    runs.here("single", job("single"))
    runs.here("stopped-1", job("stopped"), stop_after=HALF)
    runs.here("stopped", job("stopped"))
    runs.here("adapter", job("adapter", export_at_end=True, **ADAPTER))
    two = [task("ddp", job("ddp", "ddp", 2)), task("adapter-fsdp2", job("adapter-fsdp2", "fsdp2", 2, **ADAPTER))]
    run_stages(runs.folder / "workers", [stage(2, two)], runs.results)
    return runs


@pytest.mark.parametrize(("name", "reference"), [("ddp", "single"), ("adapter-fsdp2", "adapter")])
def test_however_they_are_spread_they_learn_the_same(runs: Runs, name: str, reference: str) -> None:
    assert_same_learning(runs, name, reference)


def test_a_stopped_run_goes_on_bit_for_bit(runs: Runs) -> None:
    whole, rest = runs.reports("single")[HALF:], runs.reports("stopped")
    for key in ("step", "talker_loss", "code_predictor_loss", "gradient_norm"):
        assert [report[key] for report in rest] == [report[key] for report in whole], key
    expected, found = runs.weights("single"), runs.weights("stopped")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_examples_have_the_embedding_and_the_reference_of_their_own_speaker(tmp_path: Path) -> None:
    job = make_job(tmp_path, **speakers(tmp_path), in_context_ratio=0.9)
    _, training_set, plan = plan_data(job)
    rows = [read_code_rows(speaker.dataset / ROWS_FILE) for speaker in job.speakers]
    owner = {tuple(row.codes): number for number, own in enumerate(rows) for row in own}
    references = 0
    for index in range(plan.num_steps):
        for use in (use for part in plan.step(index).micro_batches for use in part.uses):
            clip = training_set.clips[use.clip]
            assert clip.speaker == owner[tuple(clip.codes_FQ.flatten().tolist())]
            embedding = torch.tensor(rows[clip.speaker][0].speaker_embedding)
            assert torch.equal(training_set.example(use).speaker_D, embedding)
            if use.reference is not None:
                references += 1
                assert training_set.clips[use.reference].speaker == clip.speaker
    assert references


def test_everybody_is_heard_as_much_in_every_epoch(tmp_path: Path) -> None:
    job = make_job(tmp_path, **speakers(tmp_path), num_steps=None, num_epochs=3, in_context_ratio=0)
    _, training_set, plan = plan_data(job)
    for epoch in range(3):
        frames: Counter[int] = Counter()
        for step in filter(lambda step: step.epoch == epoch, map(plan.step, range(plan.num_steps))):
            for use in (use for part in step.micro_batches for use in part.uses):
                frames[training_set.clips[use.clip].speaker] += training_set.clips[use.clip].num_frames
        share = training_set.num_frames / 3
        assert all(abs(frames[speaker] - share) < 32 for speaker in range(3))


def test_rows_may_come_from_elsewhere(tmp_path: Path) -> None:
    job = make_job(tmp_path, **speakers(tmp_path))
    rows = [read_code_rows(speaker.dataset / ROWS_FILE)[::-1] for speaker in job.speakers]
    assert [clip.text_ids for clip in plan_data(job, rows)[1].clips] == [
        clip.text_ids for clip in plan_data(job)[1].clips
    ]


def test_the_exported_checkpoint_names_them_all(runs: Runs, tmp_path: Path) -> None:
    newest = list_checkpoints(runs.folder / "single")[-1]
    embeddings = plan_data(newest.job())[1].speakers_SD
    export_all(read_weights(newest, embeddings), tmp_path)
    rows = read_config(tmp_path / "custom_voice").talker.spk_id
    assert list(rows) == ["ann", "ben", "carl"]
    assert len(set(rows.values())) == 3
    note = json.loads((tmp_path / "custom_voice" / PROVENANCE_FILE).read_text())
    assert note["speakers"] == rows
    assert (note["voice"], note["speaker"]) == ("Ann", "ann")
    assert note["speaker_embeddings"]["carl"] == pytest.approx(embeddings[2].tolist(), abs=1e-7)
    assert json.loads((tmp_path / "base" / PROVENANCE_FILE).read_text())["speakers"] == {}
    model = VoiceModel.load(tmp_path / "custom_voice", precision="fp32", device="cpu")
    weights = model.talker.model.codec_embedding.weight
    for name, embedding in zip(rows, embeddings, strict=True):
        assert torch.equal(weights[rows[name]], embedding.bfloat16().float())
        VoicePrompt(speaker_name=name)


def test_the_adapter_has_a_row_for_each(runs: Runs) -> None:
    folder = runs.folder / "adapter" / EXPORTS_FOLDER / ADAPTER_FOLDER
    note = json.loads((folder / PROVENANCE_FILE).read_text())
    ((_, rows),) = json.loads((folder / ADAPTER_CONFIG_FILE).read_text())["trainable_token_indices"].items()
    assert list(note["speakers"].values()) == rows
    assert note["speaker_row"] == rows[0]
    stored = load_file(folder / ADAPTER_FILE)
    (deltas,) = [tensor for name, tensor in stored.items() if name.endswith("trainable_tokens_delta")]
    assert torch.equal(deltas, plan_data(list_checkpoints(runs.folder / "adapter")[-1].job())[1].speakers_SD)
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    assert str(runs.folder).encode() not in written


def test_a_job_with_one_speaker_is_as_before(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    before = {name: value for name, value in json.loads(job.model_dump_json()).items() if name != "more_speakers"}
    assert FineTuneJob.parse(before) == job
    assert [speaker.name for speaker in job.speakers] == ["ann"]


def test_two_speakers_need_two_names(tmp_path: Path) -> None:
    fields = speakers(tmp_path)
    with pytest.raises(JobInvalid, match="two speakers are called ann; every speaker needs a name of their own"):
        make_job(tmp_path, **{**fields, "more_speakers": [{**fields["more_speakers"][0], "voice": "ANN"}]})


def test_what_was_learnt_from_other_data_is_not_gone_on_with(tmp_path: Path) -> None:
    job = make_job(tmp_path, **speakers(tmp_path))
    moved = job.with_datasets([tmp_path / str(number) for number in range(3)])
    assert moved.differences(job) == []
    other = job.model_copy(update={"more_speakers": job.more_speakers[:1]})
    assert other.differences(job) == ["more_speakers"]
    assert job.model_copy(update={"learning_rate": 2.0, "more_speakers": ()}).differences(job) == [
        "more_speakers",
        "learning_rate",
    ]
    changed = {
        **speakers(tmp_path / "again"),
        "more_speakers": [{**job.more_speakers[0].model_dump(), "dataset_digest": "older"}],
    }
    with pytest.raises(PreflightError, match="was changed since this run was planned"):
        run_worker(make_job(tmp_path, **changed), RecordingContext(0, 1))


def test_a_base_without_room_for_all_of_them_is_said_before(tmp_path: Path) -> None:
    many = [
        {"voice": f"v{number}", "dataset": tmp_path, "dataset_digest": "1"}
        for number in range(read_config(GOLDEN_CHECKPOINT).talker.vocab_size)
    ]
    assert model_problems(make_job(tmp_path, more_speakers=many[:3])) == []
    (problem,) = model_problems(make_job(tmp_path, more_speakers=many))
    assert problem == "The base model has no free row for another speaker. Fine-tune it for fewer at once."
