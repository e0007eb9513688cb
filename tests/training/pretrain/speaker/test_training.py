"""The speaker encoder's stage: where voices belong, what is altered, and a killed run that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.pretrain.tiny_corpus import write_corpus, write_part
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


def test_differences_that_the_talker_does_not_know_are_kept():
    random = torch.Generator().manual_seed(0)
    # Speakers differ in three of sixteen directions.
    directions = torch.randn(200, 3, generator=random) @ torch.randn(3, 16, generator=random)
    directions += 0.001 * torch.randn(200, 16, generator=random)
    embeddings = 30 * directions @ torch.randn(16, 20, generator=random)
    unheard = torch.randn(2, 16, generator=random)
    lost = EmbeddingSpace.fit(directions, embeddings, ridge=1.0)
    kept = EmbeddingSpace.fit(directions, embeddings, ridge=1.0, min_gain=10.0)
    # Where speakers were known to be, they stay.
    assert float(kept.missed(kept.place(directions), embeddings)) < 0.001
    # The least of all differences, found as what regression nearly sends to nothing.
    weights = lost.place(torch.eye(16)) - lost.place(torch.zeros(16))
    least = torch.linalg.svd(weights).U[:, -1]
    for space, at_least, at_most in ((lost, 0.0, 5.0), (kept, 9.99, 10.01)):
        moved = space.place(unheard[0] + least) - space.place(unheard[0])
        assert at_least <= float(moved.norm()) <= at_most


def test_altered_speech_depends_on_the_seed_and_its_number(corpus: Path):
    first, again = Alteration(corpus, JOB), Alteration(corpus, JOB)
    other = Alteration(corpus, JOB.model_copy(update={"seed": 2}))
    for number in range(6):
        heard, voice = first.speech(number)
        for one, same in zip((heard, voice), again.speech(number), strict=True):
            assert np.array_equal(one, same)
            assert np.abs(one).max() <= 1
            assert one.std() > 0.001
        assert not np.array_equal(voice[:8000], other.speech(number)[1][:8000])
        assert 2 * SAMPLE_RATE_HZ < len(heard) <= 6 * SAMPLE_RATE_HZ < len(voice) < 12 * SAMPLE_RATE_HZ


def test_nothing_is_altered_where_no_share_asks_for_it(corpus: Path):
    plain = Alteration(
        corpus, JOB.model_copy(update={"timbre_share": 0.0, "resampled_share": 0.0, "channel_share": 0.0})
    )
    spoken = np.concatenate([utterance.audio for utterance in corpora.open_corpus(corpus)]).astype(np.float32) / 32768
    heard, voice = plain.speech(0)
    assert set(voice.tolist()) <= set(spoken.tolist())
    assert np.array_equal(heard, voice[: len(heard)])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_voices_of_other_languages_are_heard_as_often_as_asked_for(tmp_path: Path, share: float):
    folder = write_corpus(tmp_path / "tones", num_speakers=4)
    write_part(folder / corpora.OTHER_LANGUAGES, 6, shortest_seconds=0.7, num_speakers=2)
    plain = {"timbre_share": 0.0, "resampled_share": 0.0, "channel_share": 0.0, "foreign_share": share}
    _, voice = Alteration(folder, JOB.model_copy(update=plain)).speech(0)
    part = corpora.OTHER_LANGUAGES if share else corpora.TRAIN
    spoken = np.concatenate([utterance.audio for utterance in corpora.open_corpus(folder, part)])
    assert set(voice.tolist()) <= set((spoken.astype(np.float32) / 32768).tolist())


def test_the_verifier_is_asked_about_the_voice_and_not_about_the_line(corpus: Path):
    far = Alteration(corpus, JOB.model_copy(update={"channel_share": 1.0}))
    near = Alteration(corpus, JOB.model_copy(update={"channel_share": 0.0}))
    (heard, voice), (heard_near, same_voice) = far.speech(3), near.speech(3)
    assert np.array_equal(voice, same_voice)
    assert np.array_equal(heard_near, voice[: len(heard_near)])
    assert len(heard) == len(heard_near)
    assert not np.allclose(heard, heard_near, atol=0.01)


def test_what_was_made_is_not_made_again(corpus: Path, tmp_path: Path):
    said: list[str] = []
    config, verifier = read_encoder(MINI).config, load_verifier()
    made = open_heard_voices(corpus, tmp_path, JOB, config, verifier, said.append)
    kept = open_heard_voices(corpus, tmp_path, JOB, config, verifier, said.append)
    assert said == ["12 of 12 altered utterances"]
    assert len(made) == len(kept) == 12
    heard, voice = Alteration(corpus, JOB).speech(7)
    for voices in (made, kept):
        torch.testing.assert_close(voices[7].direction_V, torch.from_numpy(verifier.embed(voice)))
        torch.testing.assert_close(voices[7].mel_FM.float(), hear(heard, config), rtol=1e-3, atol=1e-2)
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


def test_voices_stay_where_an_earlier_run_has_put_them(corpus: Path, tmp_path: Path):
    def begun(run: str, job: SpeakerJob, space_of: Path | None) -> SpeakerTraining:
        return SpeakerTraining(job, corpus, MINI, tmp_path / run, device=CPU, report=silent, space_of=space_of)

    other = JOB.model_copy(update={"ridge": 3.0, "min_gain": 100.0})
    first, alone = begun("first", JOB, None), begun("alone", other, None)
    later = begun("later", other, tmp_path / "first")
    direction = torch.nn.functional.normalize(torch.ones(256), dim=0)
    assert torch.equal(later.space.place(direction), first.space.place(direction))
    assert not torch.allclose(alone.space.place(direction), first.space.place(direction))
    with pytest.raises(PretrainError, match="nowhere holds no run"):
        begun("lost", JOB, tmp_path / "nowhere")
    # It is said before the altered speech is made, which takes long.
    assert not any((tmp_path / "lost").iterdir())


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
