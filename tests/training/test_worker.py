"""A run from job to exports in one process, what it leaves on disk, and how it is stopped and taken up."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.backend.audio.small_disk import run_on_small_disk
from tests.golden import GOLDEN_CHECKPOINT
from tests.single_take import Synthesizer
from tests.training.finetuning import make_job, make_rows, write_dataset
from tests.training.strategy_worker import RecordingContext
from training.errors import PreflightError, ResumeError, TrainingError
from training.export import (
    EXPORTS_FOLDER,
    KINDS,
    PROVENANCE_FILE,
    export_checkpoint,
    read_weights,
    speaker_row,
    with_speaker,
)
from training.job import CHECKPOINTS_FOLDER
from training.job_data import plan_data
from training.model.checkpoint.digest import checkpoint_digest
from training.model.checkpoint.hashes import HASHES_FILE
from training.model.config import ModelConfig
from training.model.errors import CheckpointError
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.generation_defaults import GUIDANCE_SCALE
from training.model.voice_model import VoiceModel
from training.run_checkpoints import (
    PROGRESS_FILE,
    STATE_FOLDER,
    find_resumable,
    hold,
    list_checkpoints,
    mark_best,
    read_checkpoint,
    release,
    require_intact,
)
from training.worker import main, run_worker


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run of six steps with a checkpoint after each, done."""
    folder = tmp_path_factory.mktemp("finished")
    write_dataset(folder / "dataset", make_rows((9, 16, 23, 30, 12), num_held_out=1))
    job = make_job(folder, checkpoint_every=1, keep_checkpoints=2)
    context = RecordingContext(0, 1)
    result = run_worker(job, context)
    assert result.is_complete
    assert result.checkpoint == list_checkpoints(job.output)[-1].folder
    (folder / "reports.json").write_text(json.dumps(context.reports))
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    write_dataset(tmp_path / "dataset", make_rows((9, 16, 23, 30, 12), num_held_out=1))
    return tmp_path


def steps_on_disk(job) -> list[int]:
    return [checkpoint.progress.step for checkpoint in list_checkpoints(job.output)]


def test_reports_say_how_it_goes(finished):
    reports = json.loads((finished / "reports.json").read_text())
    assert [report["step"] for report in reports] == [1, 2, 3, 4, 5, 6]
    rates = [report["learning_rate"] for report in reports]
    assert rates[0] == rates[1] == 1e-3 > rates[2] > rates[-1] > 0
    for report in reports:
        assert report["gradient_norm"] > 0
        assert report["clips_per_second"] > 0
        assert report["frames_per_second"] > report["clips_per_second"]
        assert report["memory_bytes"] == report["worker_0_bytes"] > 1e6


def test_only_the_newest_checkpoints_stay(finished):
    assert steps_on_disk(make_job(finished)) == [5, 6]


def test_a_complete_run_has_nothing_left_to_do(finished):
    job = make_job(finished, checkpoint_every=1, export_at_end=False)
    context = RecordingContext(0, 1)
    assert run_worker(job, context).is_complete
    assert context.reports == []


@pytest.mark.parametrize("kind", KINDS)
def test_exports_load_and_speak(finished, kind):
    folder = finished / "run" / EXPORTS_FOLDER / kind
    model = VoiceModel.load(folder, precision="fp32", device="cpu")
    assert model.config.tts_model_type == kind
    assert (model.speaker_encoder is None) == (kind == "custom_voice")
    _, training_set, _ = plan_data(make_job(finished))
    voice = VoicePrompt(speaker=training_set.speaker_D) if kind == "base" else VoicePrompt(speaker_name="Ann")
    take = Synthesizer(model).speak(TakeRequest(text="Hello.", voice=voice, seed=1, max_frames=8))
    assert take.waveform.std() > 0
    note = json.loads((folder / PROVENANCE_FILE).read_text())
    assert (note["kind"], note["step"], note["voice"]) == (kind, 6, "Ann")
    assert note["dataset_digest"] == note["job"]["dataset_digest"] == "digest"
    assert note["base_model"] == str(GOLDEN_CHECKPOINT)


def test_the_speakers_row_is_the_runs_embedding(finished):
    config, training_set, _ = plan_data(make_job(finished))
    row = speaker_row(config)
    talkers = {
        kind: VoiceModel.load(finished / "run" / EXPORTS_FOLDER / kind, precision="fp32", device="cpu").talker
        for kind in KINDS
    }
    custom, base = (talkers[kind].state_dict() for kind in ("custom_voice", "base"))
    assert torch.equal(custom["model.codec_embedding.weight"][row], training_set.speaker_D.bfloat16().float())
    custom["model.codec_embedding.weight"][row] = base["model.codec_embedding.weight"][row]
    assert all(torch.equal(custom[name], base[name]) for name in base)


def test_a_checkpoint_exports_what_the_run_did(finished, tmp_path):
    job = make_job(finished)
    _, training_set, _ = plan_data(job)
    newest = list_checkpoints(job.output)[-1]
    export_checkpoint(newest, training_set.speakers_SD, tmp_path / "export", "base")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "export" / name).read_bytes() == (job.output / EXPORTS_FOLDER / "base" / name).read_bytes()
    with pytest.raises(CheckpointError, match="exists already"):
        export_checkpoint(newest, training_set.speakers_SD, tmp_path / "export", "base")


def test_speakers_of_the_base_model_keep_their_rows(golden_model):
    config = golden_model.config
    taken = with_speaker(config, "bea", speaker_row(config))
    assert speaker_row(taken) == speaker_row(config) - 1
    public = replace(config, talker=replace(config.talker, vocab_size=3072))
    assert speaker_row(public) == 3000
    assert speaker_row(with_speaker(public, "bea", 3000)) == 3071


def test_a_base_model_without_room_for_a_speaker_says_so(golden_model):
    talker = golden_model.config.talker
    full: ModelConfig = replace(
        golden_model.config,
        talker=replace(talker, vocab_size=max(talker.codec_think_eos_id, talker.codec_eos_token_id) + 1),
    )
    with pytest.raises(TrainingError, match="no free row"):
        speaker_row(full)


def test_the_best_checkpoint_and_one_in_use_stay(folder):
    job = make_job(folder, checkpoint_every=1, keep_checkpoints=1, export_at_end=False)

    class Judge(RecordingContext):
        def report(self, metrics, checkpoint_folder):
            super().report(metrics, checkpoint_folder)
            if metrics["step"] == 2:
                mark_best(job.output, 1)
            if metrics["step"] == 4:
                hold(checkpoint_folder)

    run_worker(job, Judge(0, 1))
    assert steps_on_disk(job) == [1, 3, 6]
    release(job.output / CHECKPOINTS_FOLDER / "step-00000003")
    assert not list((job.output / CHECKPOINTS_FOLDER / "step-00000003").glob("in-use"))


def test_half_a_checkpoint_is_none(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    job = make_job(tmp_path / "copy", base_model=GOLDEN_CHECKPOINT, export_at_end=False)
    checkpoints = job.output / CHECKPOINTS_FOLDER
    (checkpoints / "step-00000006").rename(checkpoints / "step-00000006.incomplete")
    found = find_resumable(job)
    assert found is not None
    assert found.progress.step == 5
    context = RecordingContext(0, 1)
    assert run_worker(job, context).is_complete
    assert [report["step"] for report in context.reports] == [6]
    assert not list(checkpoints.glob("*.incomplete"))


def cut_off_progress(checkpoint: Path) -> None:
    (checkpoint / PROGRESS_FILE).write_text('{"step": 1')


def cut_off_state(checkpoint: Path) -> None:
    largest = max((checkpoint / STATE_FOLDER).iterdir(), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def lose_state(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / STATE_FOLDER)


def flip_bytes(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(byte ^ 0xFF for byte in content[middle : middle + 64])
    path.write_bytes(content)


def flip_weights(checkpoint: Path) -> None:
    flip_bytes(max((checkpoint / STATE_FOLDER).iterdir(), key=lambda path: path.stat().st_size))


def flip_metadata(checkpoint: Path) -> None:
    flip_bytes(checkpoint / STATE_FOLDER / ".metadata")


def flip_a_number(checkpoint: Path) -> None:
    text = (checkpoint / PROGRESS_FILE).read_text()
    (checkpoint / PROGRESS_FILE).write_text(text.replace('"step": 6', '"step": 4'))


def flip_hashes(checkpoint: Path) -> None:
    flip_bytes(checkpoint / HASHES_FILE)


DAMAGES = [cut_off_progress, cut_off_state, lose_state, flip_weights, flip_metadata, flip_a_number, flip_hashes]


@pytest.mark.parametrize("damage", [flip_weights, flip_metadata])
def test_a_damaged_checkpoint_is_not_exported(finished, tmp_path, damage):
    shutil.copytree(finished, tmp_path / "copy")
    newest = list_checkpoints(tmp_path / "copy" / "run")[-1]
    damage(newest.folder)
    with pytest.raises(ResumeError, match=r"is damaged: .* is not what was written"):
        read_weights(newest, torch.zeros(1, 1))


def test_a_checkpoint_of_an_earlier_version_has_no_hashes_and_is_gone_on_from(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    job = make_job(tmp_path / "copy", export_at_end=False)
    for checkpoint in list_checkpoints(job.output):
        (checkpoint.folder / HASHES_FILE).unlink()
    context = RecordingContext(0, 1)
    assert run_worker(job, context).is_complete
    assert (context.reports, context.told) == ([], [])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_goes_on_from_before_a_damaged_checkpoint(finished, tmp_path, damage):
    shutil.copytree(finished, tmp_path / "copy")
    job = make_job(tmp_path / "copy", export_at_end=False)
    newest = list_checkpoints(job.output)[-1].folder
    damage(newest)
    with pytest.raises(ResumeError, match="step-00000006 is damaged"):
        require_intact(read_checkpoint(newest))
    context = RecordingContext(0, 1)
    assert run_worker(job, context).is_complete
    assert [report["step"] for report in context.reports] == [6]
    assert steps_on_disk(job) == [5, 6]
    assert context.told == ["The checkpoint step-00000006 is damaged and is ignored; an earlier one takes its place."]
    assert sorted(path.name for path in newest.parent.iterdir()) == ["step-00000005", "step-00000006"]


WITHOUT_ROOM = """
import sys
from pathlib import Path

from tests.training.finetuning import make_job, make_rows, write_dataset
from tests.training.strategy_worker import RecordingContext
from training import disk_room
from training.run_checkpoints import list_checkpoints
from training.job import CHECKPOINTS_FOLDER
from training.model.errors import EncoreError
from training.worker import run_worker

disk_room.ROOM_SECONDS = 0.0
folder = Path(sys.argv[1])
write_dataset(folder / "dataset", make_rows((9, 16, 23, 30, 12), num_held_out=1))
job = make_job(folder, checkpoint_every=1, keep_checkpoints=9, export_at_end=False)
try:
    run_worker(job, RecordingContext(0, 1))
except EncoreError as error:
    print(error, file=sys.stderr)
kept = [checkpoint.folder for checkpoint in list_checkpoints(job.output)]
assert kept == sorted((job.output / CHECKPOINTS_FOLDER).iterdir()), "half a checkpoint is left"
print(len(kept), file=sys.stderr)
"""


def test_a_full_disk_ends_the_run_and_keeps_what_was_saved(tmp_path):
    *_, complaint, num_kept = run_on_small_disk(tmp_path / "disk", WITHOUT_ROOM, size="4m").splitlines()
    assert "could not be written" in complaint
    assert complaint.endswith("Free some space there and resume the run.")
    assert 1 <= int(num_kept) < 6


UNTIL_THERE_IS_ROOM = """
import json, sys, threading, time
from pathlib import Path

from tests.training.finetuning import make_job, make_rows, write_dataset
from tests.training.strategy_worker import RecordingContext
from training.run_checkpoints import CheckpointKeeper
from training.worker import run_worker

folder, when = Path(sys.argv[1]), sys.argv[2]
write_dataset(folder / "dataset", make_rows((9, 16, 23, 30, 12), num_held_out=1))
job = make_job(folder, checkpoint_every=2, keep_checkpoints=2, export_at_end=False)
filler = folder / "filler"

def fill():
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(2**12)):
                pass
        except OSError:
            pass

class Context(RecordingContext):
    def report(self, metrics, checkpoint_folder):
        super().report(metrics, checkpoint_folder)
        if metrics["step"] == 3 and when == "before":
            fill()

    def tell(self, sentence):
        super().tell(sentence)
        if "is full" in sentence:
            threading.Timer(2, filler.unlink).start()

context = Context(0, 1)
if when == "during":
    start = CheckpointKeeper.start
    def start_and_fill(keeper, progress, *rest):
        start(keeper, progress, *rest)
        if progress.step == 4 and not context.told:
            fill()
    CheckpointKeeper.start = start_and_fill
assert run_worker(job, context).is_complete
losses = [report["talker_loss"] for report in context.reports]
print(json.dumps({"told": context.told, "losses": losses, "checkpoints": context.checkpoints}), file=sys.stderr)
"""


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_run_waits_for_room_and_continues_by_itself(tmp_path, when):
    """Of the system's own ENOSPC: before a checkpoint is begun, and while one is being written."""
    program = UNTIL_THERE_IS_ROOM.replace("sys.argv[2]", repr(when))
    said = run_on_small_disk(tmp_path / "disk", program, size="16m")
    assert said.count("{") == 1, said
    # Python 3.13 says last that a file on the full disk could not be flushed.
    found, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    begun, over = found["told"]
    assert "is full: the checkpoint at step" in begun
    assert "waits for room and continues by itself" in begun
    assert over == "There is room on the disk again; the run continues."
    assert found["checkpoints"][-1] == "step-00000006"
    write_dataset(tmp_path / "dataset", make_rows((9, 16, 23, 30, 12), num_held_out=1))
    alone = RecordingContext(0, 1)
    run_worker(make_job(tmp_path, checkpoint_every=2, keep_checkpoints=2, export_at_end=False), alone)
    assert found["losses"] == [report["talker_loss"] for report in alone.reports]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.5}, "started with another learning_rate"),
        ({"strategy": "zero2"}, "cannot be read by zero2"),
    ],
    ids=["recipe", "family"],
)
def test_another_run_is_not_gone_on_with(finished, changes, message):
    with pytest.raises(ResumeError, match=message):
        find_resumable(make_job(finished, **changes))


def test_an_edited_dataset_is_refused(folder):
    with pytest.raises(PreflightError, match="was changed since this run was planned"):
        run_worker(make_job(folder, dataset_digest="older"), RecordingContext(0, 1))


def test_a_folder_that_cannot_be_written_is_refused(folder):
    (folder / "run").write_text("in the way")
    with pytest.raises(PreflightError, match="cannot be written"):
        run_worker(make_job(folder), RecordingContext(0, 1))


def test_divergence_ends_the_run_and_keeps_its_checkpoints(folder):
    job = make_job(folder, learning_rate=1e30, warmup_ratio=0.0, checkpoint_every=1, export_at_end=False)
    with pytest.raises(TrainingError, match="diverged"):
        run_worker(job, RecordingContext(0, 1))
    assert steps_on_disk(job) == [1]


def test_one_clip_is_enough_to_run(tmp_path):
    write_dataset(tmp_path / "dataset", make_rows((20,)))
    context = RecordingContext(0, 1)
    assert run_worker(make_job(tmp_path, num_steps=12, export_at_end=False), context).is_complete
    for loss in ("talker_loss", "code_predictor_loss"):
        assert context.reports[-1][loss] < 0.99 * context.reports[0][loss]


def test_the_command_does_a_job(folder, capsys, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    job = make_job(folder, num_steps=2, export_at_end=False)
    job.write(folder / "job.json")
    assert main([str(folder / "job.json")]) == 0
    assert "step 2/2" in capsys.readouterr().out
    lines = [json.loads(line) for line in (job.output / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[-1]["checkpoint"] == "step-00000002"


def test_the_command_says_what_is_wrong_on_one_line(folder, capsys):
    (folder / "job.json").write_text(json.dumps({"voize": "Ann"}))
    assert main([str(folder / "job.json")]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: The fine-tune job is invalid")
    assert "did you mean 'voice'" in message
    assert len(message.splitlines()) == 1


def test_takes_of_an_earlier_version_s_checkpoint_are_not_guided(tmp_path):
    """It does not say which base it was trained on, which may have learnt to be guided since."""
    rows = make_rows((9, 16, 23))
    write_dataset(tmp_path / "dataset", rows)
    shutil.copytree(GOLDEN_CHECKPOINT, tmp_path / "model")
    settings = tmp_path / "model" / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {GUIDANCE_SCALE: 1.5}))
    job = make_job(tmp_path, base_model=tmp_path / "model", num_steps=1, export_at_end=False, checkpoint_every=1)
    run_worker(job, RecordingContext(0, 1))
    newest = list_checkpoints(job.output)[-1]
    assert newest.progress.base_digest == checkpoint_digest(tmp_path / "model")
    earlier = replace(newest, progress=newest.progress.model_copy(update={"base_digest": None}))
    for name, checkpoint, scale in (("newest", newest, 1.5), ("earlier", earlier, None)):
        export_checkpoint(checkpoint, torch.zeros(1, len(rows[0].speaker_embedding)), tmp_path / name, "custom_voice")
        written = json.loads((tmp_path / name / "generation_config.json").read_text())
        assert written.pop(GUIDANCE_SCALE, None) == scale
        assert written == {key: value for key, value in json.loads(settings.read_text()).items() if key in written}
        assert len(written) == len(json.loads(settings.read_text())) - 1
