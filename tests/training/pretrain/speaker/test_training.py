"""The speaker encoder's stage: where voices belong, what is altered, and a killed run that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.pretrain.tiny_corpus import write_corpus
from training.model.project import PROJECT_FOLDER
from training.model.speaker_verifier import load_verifier
from training.pretrain import __main__ as command_line
from training.pretrain.corpus import corpus as corpora
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_log import read_log
from training.pretrain.speaker.embedding_space import EmbeddingSpace
from training.pretrain.speaker.heard_voices import Alteration, hear, open_heard_voices
from training.pretrain.speaker.job import SpeakerJob
from training.pretrain.speaker.training import SpeakerTraining, read_encoder

CPU = torch.device("cpu")
MINI = PROJECT_FOLDER / "assets" / "mini"
JOB = SpeakerJob(
    num_steps=8, num_utterances=12, batch_size=4, num_warmup_steps=2, validate_every=4, log_every=2, ridge=0.1
)


def silent(line: str) -> None:
    """Nobody reads what tiny runs report."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tones by four speakers."""
    torch.set_num_threads(1)
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tones", num_speakers=4)


def test_a_voice_between_two_is_placed_between_them(tmp_path: Path):
    random = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.rand(200, 16, generator=random), dim=1)
    embeddings = 30 * directions @ torch.randn(16, 8, generator=random) + 5
    space = EmbeddingSpace.fit(directions, embeddings, ridge=1e-9)
    torch.testing.assert_close(space.place(directions), embeddings, rtol=1e-3, atol=1e-2)
    between = (directions[0] + directions[1]) / 2
    torch.testing.assert_close(space.place(between), (embeddings[0] + embeddings[1]) / 2, rtol=1e-3, atol=1e-2)
    assert float(space.missed(embeddings, embeddings)) == 0
    assert float(space.missed(space.mean_D.expand(200, -1), embeddings)) == pytest.approx(1)
    space.save(tmp_path / "space.safetensors")
    again = EmbeddingSpace.load(tmp_path / "space.safetensors")
    assert torch.equal(again.place(between), space.place(between))
    # What is known too little of stays near the mean of all.
    careful = EmbeddingSpace.fit(directions, embeddings, ridge=1e9)
    torch.testing.assert_close(careful.place(between), embeddings.mean(0), rtol=1e-3, atol=1e-3)


def test_altered_speech_depends_on_the_seed_and_its_number(corpus: Path):
    first, again = Alteration(corpus, JOB), Alteration(corpus, JOB)
    other = Alteration(corpus, JOB.model_copy(update={"seed": 2}))
    for number in range(6):
        speech = first.speech(number)
        assert np.array_equal(speech, again.speech(number))
        assert not np.array_equal(speech[:8000], other.speech(number)[:8000])
        assert np.abs(speech).max() <= 1
        assert speech.std() > 0.001
        assert 2 * SAMPLE_RATE_HZ < len(speech) < 8 * SAMPLE_RATE_HZ


def test_nothing_is_altered_where_no_share_asks_for_it(corpus: Path):
    plain = Alteration(
        corpus, JOB.model_copy(update={"timbre_share": 0.0, "resampled_share": 0.0, "channel_share": 0.0})
    )
    spoken = np.concatenate([utterance.audio for utterance in corpora.open_corpus(corpus)]).astype(np.float32) / 32768
    assert set(plain.speech(0).tolist()) <= set(spoken.tolist())


def test_what_was_made_is_not_made_again(corpus: Path, tmp_path: Path):
    said: list[str] = []
    config, verifier = read_encoder(MINI).config, load_verifier()
    made = open_heard_voices(corpus, tmp_path, JOB, config, verifier, said.append)
    kept = open_heard_voices(corpus, tmp_path, JOB, config, verifier, said.append)
    assert said == ["12 of 12 altered utterances"]
    assert len(made) == len(kept) == 12
    speech = Alteration(corpus, JOB).speech(7)
    for voices in (made, kept):
        torch.testing.assert_close(voices[7].direction_V, torch.from_numpy(verifier.embed(speech)))
        torch.testing.assert_close(voices[7].mel_FM.float(), hear(speech, config), rtol=1e-3, atol=1e-2)
    excerpts = made.excerpts([7, 0], 900, np.random.default_rng(0))
    assert excerpts.shape == (2, 900, config.mel_dim)


@pytest.fixture(scope="module")
def training(corpus: Path) -> Callable[[Path, SpeakerJob], SpeakerTraining]:
    return lambda run, job: SpeakerTraining(job, corpus, MINI, run, device=CPU, report=silent)


def test_the_encoder_comes_nearer_to_where_voices_belong(
    training: Callable[[Path, SpeakerJob], SpeakerTraining], tmp_path: Path
):
    # Tones are far from where speakers are.
    steps = {"num_steps": 40, "log_every": 20, "validate_every": 20}
    run = training(tmp_path, JOB.model_copy(update={**steps, "muon_learning_rate": 0.1, "peak_learning_rate": 0.02}))
    before = run.validate()
    assert run.run(save_every_seconds=1e9, should_stop=lambda: False)
    after = run.validate()
    assert after["altered"] < 0.8 * before["altered"]
    assert {"altered", "held-out-voice", "held-out-parameters"} == after.keys()
    logged = [line for line in read_log(tmp_path) if "missed" in line]
    assert [line["step"] for line in logged] == [20, 40]


def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    training: Callable[[Path, SpeakerJob], SpeakerTraining], tmp_path: Path
):
    whole = training(tmp_path / "whole", JOB)
    assert whole.run(save_every_seconds=1e9, should_stop=lambda: False)
    stopped = training(tmp_path / "stopped", JOB)
    assert not stopped.run(save_every_seconds=1e9, should_stop=lambda: stopped.step >= 4)
    resumed = training(tmp_path / "stopped", JOB)
    assert resumed.step == 4
    # Where the speakers of the corpus are was found by the encoder that the run began with.
    assert torch.equal(resumed.space.mean_D, whole.space.mean_D)
    assert resumed.run(save_every_seconds=1e9, should_stop=lambda: False)
    for (name, one), other in zip(
        whole.encoder.state_dict().items(), resumed.encoder.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name


def test_the_command_trains_and_says_what_is_missing(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["speaker", "--corpus", str(corpus), "--out", str(tmp_path / "run"), "--steps", "2"]
    asked = [*arguments, "--utterances", "6", "--threads", "1"]
    assert command_line.main([*asked, "--start", str(MINI)]) == 0
    assert (tmp_path / "run" / "losses.svg").read_text(encoding="utf-8").startswith("<svg")
    about = json.loads((tmp_path / "run" / "state" / "job.json").read_text(encoding="utf-8"))
    assert about["step"] == 2
    assert command_line.main([*asked, "--start", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err
    assert command_line.main([*arguments, "--start", str(MINI), "--utterances", "0"]) == 1
    assert "num_utterances" in capsys.readouterr().err


def test_one_speaker_is_nowhere_between_others(tmp_path: Path):
    alone = write_corpus(tmp_path / "alone")
    with pytest.raises(PretrainError, match="two speakers"):
        SpeakerTraining(JOB, alone, MINI, tmp_path / "run", device=CPU, report=silent)


def test_without_the_verifier_there_is_nothing_to_learn_from(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("training.pretrain.speaker.training.load_verifier", lambda: None)
    with pytest.raises(PretrainError, match="assets/verifier"):
        SpeakerTraining(JOB, corpus, MINI, tmp_path, device=CPU, report=silent)
