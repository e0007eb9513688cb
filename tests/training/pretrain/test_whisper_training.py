"""The transcriber's stage on a corpus of tones: losses fall, a killed run goes on, and Whisper loads what it writes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import whisper
from safetensors.torch import load_file
from whisper.timing import find_alignment

from tests.training.pretrain.tiny_corpus import tone, write_corpus
from training.pretrain import __main__ as command_line
from training.pretrain.errors import PretrainError
from training.pretrain.train_whisper import export_run, train
from training.pretrain.training_log import read_log
from training.pretrain.whisper_evaluation import transcribe
from training.pretrain.whisper_export import WHISPER_FILE, read_whisper
from training.pretrain.whisper_job import SAMPLES_PER_POSITION, WhisperJob, WhisperSize
from training.pretrain.whisper_network import BIAS_STATE, LogMel, WhisperNetwork
from training.pretrain.whisper_spelling import Spelling
from training.pretrain.whisper_training import WhisperTraining
from training.pretrain.whisper_validation import PARTS

CPU = torch.device("cpu")
SIZE = WhisperSize(width=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=2)
JOB = WhisperJob(
    num_steps=24, size=SIZE, positions_per_step=150, long_share=0.0, num_warmup_steps=4, validate_every=12, log_every=4
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tones")


def run(job: WhisperJob, corpus: Path, out: Path, save_every_seconds: float = 1e9) -> int:
    return train(job, corpus, out, device=CPU, save_every_seconds=save_every_seconds, num_evaluated=1)


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    out = tmp_path_factory.mktemp("finished")
    torch.set_num_threads(1)
    assert run(JOB, corpus, out) == 0
    return out


@pytest.fixture(scope="module")
def model(finished: Path) -> whisper.Whisper:
    return whisper.load_model(str(finished / WHISPER_FILE), device="cpu")


def trained(finished: Path) -> WhisperNetwork:
    network = WhisperNetwork(SIZE, len(Spelling(JOB.num_text_tokens).used))
    stored = load_file(finished / "state" / "model.safetensors")
    network.load_state_dict(
        {name.removeprefix("average."): value for name, value in stored.items() if name.startswith("average.")}
    )
    return network.eval()


def heard(number: int) -> np.ndarray:
    return tone(number).astype(np.float32) / 32768


def test_losses_fall(finished: Path):
    lines = [line for line in read_log(finished) if "text" in line]
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 20, 24]
    assert lines[-1]["text"] < 0.9 * lines[0]["text"]
    assert lines[-1]["letters"] < lines[0]["letters"]
    assert (finished / "losses.svg").is_file()


def test_held_out_parts_are_measured(finished: Path):
    lines = [line for line in read_log(finished) if f"validation/text/{PARTS[0]}" in line]
    assert [line["step"] for line in lines] == [12, 24]
    for part in PARTS:
        assert lines[-1][f"validation/text/{part}"] < lines[0][f"validation/text/{part}"]
        assert f"validation/letters/{part}" in lines[-1]


class Killed(BaseException):
    """Ends a run as abruptly as a test can without taking the interpreter along."""


def test_a_killed_run_continues_to_the_same_losses_and_weights(
    corpus: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    unharmed = WhisperTraining.train_step

    def train_step(training: WhisperTraining) -> dict[str, float]:
        if training.step == 14:
            raise Killed
        return unharmed(training)

    with monkeypatch.context() as patch:
        patch.setattr(WhisperTraining, "train_step", train_step)
        with pytest.raises(Killed):
            run(JOB, corpus, tmp_path, save_every_seconds=0)
    assert json.loads((tmp_path / "state" / "job.json").read_text())["step"] == 12
    assert run(JOB, corpus, tmp_path) == 0
    assert list(read_log(tmp_path)) == list(read_log(finished))
    resumed = load_file(tmp_path / "state" / "model.safetensors")
    for name, expected in load_file(finished / "state" / "model.safetensors").items():
        assert torch.equal(resumed[name], expected), name
    assert (tmp_path / WHISPER_FILE).read_bytes() == (finished / WHISPER_FILE).read_bytes()


def test_a_run_told_to_stop_saves_what_can_be_shipped(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    unharmed = WhisperTraining.train_step

    def train_step(training: WhisperTraining) -> dict[str, float]:
        if training.step == 1:
            signal.raise_signal(signal.SIGTERM)
        return unharmed(training)

    monkeypatch.setattr(WhisperTraining, "train_step", train_step)
    assert run(JOB, corpus, tmp_path) == 3
    assert "stopped after step 4; the same command continues" in capsys.readouterr().out
    whisper.load_model(str(tmp_path / WHISPER_FILE), device="cpu")


def test_whisper_loads_the_file_as_an_english_model(finished: Path, model: whisper.Whisper):
    assert not model.is_multilingual
    assert model.dims.n_audio_ctx == 1500
    # The table of 51,864 tokens takes hardly more room than the used ones.
    assert (finished / WHISPER_FILE).stat().st_size < 400_000
    assert isinstance(transcribe(model, [heard(0)])[0], str)


def test_whisper_computes_what_was_trained(finished: Path, model: whisper.Whisper):
    spelling = Spelling(JOB.num_text_tokens)
    tokens = [spelling.whisper.sot, *spelling.spell([], timed=False).tokens, 40, 300]
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(heard(3)))[None]
    network = trained(finished)
    with torch.no_grad():
        expected = network.decode(spelling.rows(tokens)[None], network.encode(mel)).logits
        found = model(mel, torch.tensor([tokens]))
    assert torch.allclose(found[..., spelling.used], expected, atol=0.05)
    unused = torch.ones(found.shape[-1], dtype=torch.bool)
    unused[spelling.used] = False
    assert found[..., unused].max() < -29


def test_training_leaves_the_state_that_carries_biases_alone(finished: Path):
    last = trained(finished).decoder.ln
    assert last.weight[BIAS_STATE] == 0.0
    assert last.bias[BIAS_STATE] == 1.0


def test_words_have_times_within_the_sound(model: whisper.Whisper):
    tokenizer = whisper.tokenizer.get_tokenizer(multilingual=False)
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(heard(7)))
    words = find_alignment(model, tokenizer, tokenizer.encode(" hum hum"), mel, num_frames=100)
    assert [word.word for word in words[:2]] == [" hum", " hum"]
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert 0.0 <= times[0] <= times[-1] <= 1.0


def test_spectrograms_are_whispers(model: whisper.Whisper):
    sound = torch.from_numpy(heard(2)[: 20 * SAMPLES_PER_POSITION])
    quiet = torch.zeros_like(sound)
    quiet[:640] = 0.01 * sound[:640]
    found = LogMel()(torch.stack([sound, quiet]))
    for row, one in zip(found, (sound, quiet), strict=True):
        assert torch.allclose(row, whisper.log_mel_spectrogram(one), atol=1e-5)


def test_another_run_starts_with_all_weights_of_a_run(corpus: Path, finished: Path, tmp_path: Path):
    started = WhisperTraining(JOB, corpus, tmp_path, device=CPU, report=lambda line: None, start=finished)
    expected = load_file(finished / "state" / "model.safetensors")
    for name, network in started.networks.items():
        for key, value in network.state_dict().items():
            assert torch.equal(value, expected[f"{name}.{key}"]), f"{name}.{key}"


def test_another_run_starts_with_the_weights_of_a_file(corpus: Path, finished: Path, tmp_path: Path):
    started = WhisperTraining(
        JOB, corpus, tmp_path, device=CPU, report=lambda line: None, start=finished / WHISPER_FILE
    )
    expected = trained(finished).state_dict()
    for name, value in started.network.state_dict().items():
        if not name.startswith("letters."):
            assert torch.equal(value, expected[name].half().float()), name
    (tmp_path / "broken.pt").write_bytes(b"no model")
    with pytest.raises(PretrainError, match=r"broken\.pt is no transcriber"):
        read_whisper(tmp_path / "broken.pt", started.network, started.spelling)


def test_a_diverged_run_stops(corpus: Path, tmp_path: Path):
    job = JOB.model_copy(update={"vector_learning_rate": 1e30, "matrix_learning_rate": 1e30})
    with pytest.raises(PretrainError, match="diverged at step"):
        run(job, corpus, tmp_path)


def test_the_command_exports_and_measures(corpus: Path, finished: Path, capsys: pytest.CaptureFixture[str]):
    folders = ["--corpus", str(corpus), "--out", str(finished)]
    assert command_line.main(["whisper", *folders, "--evaluate", "--utterances", "1"]) == 0
    shown = capsys.readouterr().out
    assert "as it is after step 24 of 24" in shown
    assert "held-out-voice" in shown
    assert command_line.main(["whisper", "--corpus", str(corpus), "--out", str(corpus), "--export"]) == 1
    assert "holds no run of the transcriber" in capsys.readouterr().err
    assert export_run(finished) == finished / WHISPER_FILE
