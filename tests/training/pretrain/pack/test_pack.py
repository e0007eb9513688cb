"""Packing the runs of all stages, tiny ones, as one checkpoint."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.pretrain.talker import test_training as talker_stage
from tests.training.pretrain.tiny_corpus import write_corpus
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.model.project import PROJECT_FOLDER
from training.model.voice_model import VoiceModel
from training.pretrain import __main__ as command_line
from training.pretrain.codec import precision
from training.pretrain.codec.training import TokenizerTraining
from training.pretrain.errors import PretrainError
from training.pretrain.pack import pack as packing
from training.pretrain.pack.model_card import model_card
from training.pretrain.pack.run_summary import thinned
from training.pretrain.speaker.job import SpeakerJob
from training.pretrain.speaker.training import SpeakerTraining
from training.pretrain.talker.training import TalkerTraining

CPU = torch.device("cpu")
VOICES = sorted((PROJECT_FOLDER / "assets" / "voices").glob("*.flac"))


def silent(line: str) -> None:
    """Nobody reads what tiny runs report."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> packing.Sources:
    """Two runs, hardly trained."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    corpus = write_corpus(folder / "corpus")
    runs = packing.Sources(tokenizer=folder / "tokenizer", talker=folder / "talker", speech=VOICES[:1])
    short = {"num_steps": 2, "log_every": 2, "validate_every": 2}
    codec = TokenizerTraining(
        talker_stage.TOKENIZER_JOB, corpus, runs.tokenizer, device=CPU, compiled=False, report=silent
    )
    assert codec.run(save_every_seconds=1e9, should_stop=lambda: False)
    talker_job = talker_stage.JOB.model_copy(update=short)
    talker = TalkerTraining(talker_job, corpus, runs.tokenizer, runs.talker, device=CPU, report=silent)
    assert talker.run(save_every_seconds=1e9, should_stop=lambda: False)
    return runs


@pytest.fixture(scope="module")
def packed(sources: packing.Sources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "mini"
    packing.pack(sources, out, report=silent)
    return out


def test_the_checkpoint_loads_with_everything(packed: Path):
    model = VoiceModel.load(packed, precision="fp32", device="cpu")
    assert model.speaker_encoder is not None
    assert model.sample_rate == 16_000


def test_it_says_what_it_is_and_how_it_was_made(packed: Path):
    card = (packed / "README.md").read_text(encoding="utf-8")
    assert "| talker | 0 | 2 | 2 |" in card
    about = json.loads((packed / "training" / "about.json").read_text(encoding="utf-8"))
    assert {name: run["steps_done"] for name, run in about["runs"].items()} == {"tokenizer": 2, "talker": 2}
    assert "cores" in about["machine"]
    for name in about["runs"]:
        assert (packed / "training" / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg")
        assert (packed / "training" / f"{name}.jsonl").is_file()


def test_a_checkpoint_gives_its_talker_to_a_codec_that_was_changed_alone(
    sources: packing.Sources, packed: Path, tmp_path: Path
):
    (packed / "whisper.pt").touch()
    again = packing.Sources(tokenizer=sources.tokenizer, talker=packed, speech=VOICES[:1])
    packing.pack(again, tmp_path / "out", report=silent)
    (packed / "whisper.pt").unlink()
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (packed / "model.safetensors").read_bytes()
    assert (tmp_path / "out" / "training" / "talker.jsonl").is_file()
    before, after = (json.loads((one / "training" / "about.json").read_text()) for one in (packed, tmp_path / "out"))
    assert after["runs"] == before["runs"]
    assert not (tmp_path / "out" / "whisper.pt").exists()


def test_a_checkpoint_gives_its_codec_to_a_talker_that_was_trained_on(
    sources: packing.Sources, packed: Path, tmp_path: Path
):
    again = packing.Sources(tokenizer=packed, talker=sources.talker, speech=VOICES[:1])
    packing.pack(again, tmp_path / "out", report=silent)
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors", "training/tokenizer.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (packed / name).read_bytes()
    before, after = (json.loads((one / "training" / "about.json").read_text()) for one in (packed, tmp_path / "out"))
    assert after["runs"] == before["runs"]
    # What a codec has heard of people is named with it, whatever its talker has heard since.
    train, recorded = {"hours": 1.0, "speakers": 2}, {"hours": 0.3, "speakers": 1}
    told = json.loads((tmp_path / "out" / "training" / "about.json").read_text())
    told["corpus"] = {"parts": {"train": train, "recordings": recorded}}
    (tmp_path / "out" / "training" / "about.json").write_text(json.dumps(told))
    (tmp_path / "manifest.json").write_text(json.dumps({"parts": {"train": train, "recordings": {"hours": 9.0}}}))
    further = packing.Sources(tokenizer=tmp_path / "out", talker=sources.talker, corpus=tmp_path, speech=VOICES[:1])
    packing.pack(further, tmp_path / "further", report=silent)
    kept = json.loads((tmp_path / "further" / "training" / "about.json").read_text())
    assert kept["corpus"]["parts"] == {"train": train, "recordings": recorded}
    assert "Maxim Topal" in (tmp_path / "further" / "README.md").read_text(encoding="utf-8")
    both = packing.Sources(tokenizer=packed, talker=packed, speech=VOICES[:1])
    with pytest.raises(PretrainError, match="All of it is packed already"):
        packing.pack(both, tmp_path / "out", report=silent)


def test_a_checkpoint_is_given_a_speaker_encoder_that_was_trained_alone(
    sources: packing.Sources, packed: Path, tmp_path: Path
):
    corpus = write_corpus(tmp_path / "corpus", num_speakers=2)
    job = SpeakerJob(num_steps=2, num_utterances=4, batch_size=2, validate_every=2, log_every=2)
    run = tmp_path / "speaker"
    training = SpeakerTraining(job, corpus, packed, run, device=CPU, report=silent)
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False)
    given = packing.Sources(tokenizer=packed, talker=packed, speaker=run, speech=VOICES[:1])
    packing.pack(given, tmp_path / "out", report=silent)
    before, after = (load_file(one / "model.safetensors") for one in (packed, tmp_path / "out"))
    for name, tensor in before.items():
        if not name.startswith("speaker_encoder."):
            assert torch.equal(after[name], tensor), name
    for name, tensor in training.encoder.state_dict().items():
        assert torch.equal(after[f"speaker_encoder.{name}"], tensor.bfloat16()), name
    assert any(not torch.equal(after[name], before[name]) for name in before)
    about = json.loads((tmp_path / "out" / "training" / "about.json").read_text(encoding="utf-8"))
    assert about["runs"]["speaker"]["steps_done"] == 2
    assert "`speaker`" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    # Where the codec is changed later, it stays, and what is said of it: whose voices it has heard, too.
    train, foreign = {"hours": 1.0, "speakers": 2}, {"utterances": 3}
    about["corpus"] = {"parts": {"train": train, "other-languages": foreign}}
    (tmp_path / "out" / "training" / "about.json").write_text(json.dumps(about))
    (tmp_path / "manifest.json").write_text(json.dumps({"parts": {"train": train, "other-languages": {}}}))
    later = packing.Sources(tokenizer=sources.tokenizer, talker=tmp_path / "out", corpus=tmp_path, speech=VOICES[:1])
    packing.pack(later, tmp_path / "later", report=silent)
    kept = json.loads((tmp_path / "later" / "training" / "about.json").read_text(encoding="utf-8"))
    assert kept["runs"] == about["runs"]
    assert kept["corpus"]["parts"] == {"train": train, "other-languages": foreign}
    card = (tmp_path / "later" / "README.md").read_text(encoding="utf-8")
    assert "were heard by the speaker encoder: RHVoice's" in card
    assert "Marciniszyn" in card
    assert "festvox-ru" not in card
    about["corpus"] |= {"recipe_version": 4, "engines": {"RHVoice-test": "1", "text2wave": "2"}}
    card = model_card({**kept, **about}, 1_000_000)
    assert "were heard by the speaker encoder and lent their spectrum to speakers of the corpus: RHVoice's" in card
    assert "festvox-ru" in card
    assert "Pico's German" not in card
    # A corpus whose part of them was never made has speakers like them all the same.
    about["corpus"]["parts"]["other-languages"] = {}
    card = model_card({**kept, **about}, 1_000_000)
    assert "Voices of other languages lent their spectrum to speakers of the corpus: RHVoice's" in card
    assert (tmp_path / "later" / "training" / "speaker.jsonl").is_file()
    again = load_file(tmp_path / "later" / "model.safetensors")
    assert all(torch.equal(again[name], after[name]) for name in after)


def test_a_talker_is_averaged_with_the_one_it_went_on_from(sources: packing.Sources, packed: Path, tmp_path: Path):
    former = tmp_path / "former"
    shutil.copytree(packed, former)
    own = load_file(packed / "model.safetensors")
    save_file({name: 3 * one for name, one in own.items()}, former / "model.safetensors", metadata={"format": "pt"})
    averaged = packing.Sources(
        tokenizer=sources.tokenizer, talker=sources.talker, average=former, speech=sources.speech
    )
    packing.pack(averaged, tmp_path / "out", report=silent)
    means = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(means[name], 2 * one) for name, one in own.items())
    assert json.loads((tmp_path / "out" / "training" / "about.json").read_text())["is_averaged"]
    later = packing.Sources(tokenizer=sources.tokenizer, talker=tmp_path / "out", speech=VOICES[:1])
    packing.pack(later, tmp_path / "later", report=silent)
    assert json.loads((tmp_path / "later" / "training" / "about.json").read_text())["is_averaged"]

    layer = "talker.code_predictor.model.layers.0."
    shallow = {name: one for name, one in own.items() if not name.startswith(layer)}
    save_file(shallow, former / "model.safetensors", metadata={"format": "pt"})
    packing.pack(averaged, tmp_path / "out", report=silent)
    means = load_file(tmp_path / "out" / "model.safetensors")
    halved = {f"{layer}self_attn.o_proj.weight", f"{layer}mlp.down_proj.weight"}
    assert all(torch.equal(means[name], one / 2 if name in halved else one) for name, one in own.items())

    save_file({name: 3 * one for name, one in own.items()}, former / "model.safetensors", metadata={"format": "pt"})
    packing.pack(replace(averaged, average_share=0.25), tmp_path / "out", report=silent)
    means = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.allclose(means[name], 1.5 * one, rtol=0.01) for name, one in own.items())
    with pytest.raises(PretrainError, match="choose one between 0 and 1"):
        packing.pack(replace(averaged, average_share=1.0), tmp_path / "out", report=silent)

    name = next(iter(own))
    save_file({name: own[name]}, former / "model.safetensors")
    with pytest.raises(PretrainError, match="other sizes"):
        packing.pack(averaged, tmp_path / "out", report=silent)
    shutil.rmtree(former)
    with pytest.raises(PretrainError, match="no checkpoint to average with"):
        packing.pack(averaged, tmp_path / "out", report=silent)


def test_takes_are_guided_where_the_talker_has_learnt_speech_without_text(
    sources: packing.Sources, packed: Path, tmp_path: Path
):
    corpus = sources.talker.parent / "corpus"
    job = talker_stage.JOB.model_copy(
        update={"num_steps": 2, "log_every": 2, "validate_every": 2, "unconditional_share": 0.3}
    )
    training = TalkerTraining(job, corpus, sources.tokenizer, tmp_path / "run", device=CPU, report=silent)
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False)
    own = replace(sources, talker=tmp_path / "run")
    packing.pack(own, tmp_path / "usual", report=silent)
    assert VoiceModel.load(tmp_path / "usual", precision="fp32", device="cpu").guidance_scale == 2
    assert "guided" in (tmp_path / "usual" / "README.md").read_text(encoding="utf-8")
    packing.pack(replace(own, guidance_scale=3.0), tmp_path / "further", report=silent)
    assert VoiceModel.load(tmp_path / "further", precision="fp32", device="cpu").guidance_scale == 3
    packing.pack(replace(sources, talker=tmp_path / "further"), tmp_path / "again", report=silent)
    assert VoiceModel.load(tmp_path / "again", precision="fp32", device="cpu").guidance_scale == 3
    with pytest.raises(PretrainError, match="choose one from 1, which is none, to 10"):
        packing.pack(replace(own, guidance_scale=0.5), tmp_path / "out", report=silent)

    assert not VoiceModel.load(packed, precision="fp32", device="cpu").is_guided
    packing.pack(replace(sources, guidance_scale=1.0), tmp_path / "plain", report=silent)
    later = replace(sources, talker=tmp_path / "plain", guidance_scale=1.5)
    with pytest.raises(PretrainError, match="has not learnt"):
        packing.pack(later, tmp_path / "later", report=silent)
    assert "guided" not in (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")
    runs = ["--tokenizer", str(sources.tokenizer), "--talker", str(sources.talker), "--out", str(tmp_path / "out")]
    assert command_line.main(["pack", *runs, "--guidance-scale", "1.5"]) == 1
    assert not (tmp_path / "out").exists()


def test_a_decoder_is_averaged_with_the_one_it_went_on_from(sources: packing.Sources, packed: Path, tmp_path: Path):
    former, file = tmp_path / "former", "speech_tokenizer/model.safetensors"
    shutil.copytree(packed, former)
    own = load_file(packed / file)
    learnt = {name for name in own if name.startswith("decoder.") and "codebook" not in name}
    assert learnt
    others = {name: 3 * one if name in learnt else one for name, one in own.items()}
    save_file(others, former / file, metadata={"format": "pt"})
    averaged = replace(sources, average_decoder=former)
    packing.pack(averaged, tmp_path / "out", report=silent)
    means = load_file(tmp_path / "out" / file)
    for name, one in own.items():
        wanted = 2 * one if name in learnt else one
        assert torch.allclose(means[name].float(), wanted.float(), rtol=0.01, atol=1e-6), name
    about = json.loads((tmp_path / "out" / "training" / "about.json").read_text())
    assert about["is_decoder_averaged"]
    assert not about["is_averaged"]
    # Its talker goes on with another run: the codec's decoder stays a mean.
    packing.pack(replace(sources, tokenizer=tmp_path / "out"), tmp_path / "later", report=silent)
    assert json.loads((tmp_path / "later" / "training" / "about.json").read_text())["is_decoder_averaged"]

    save_file({name: one + 1 for name, one in own.items()}, former / file)
    with pytest.raises(PretrainError, match="writes other codes"):
        packing.pack(averaged, tmp_path / "out", report=silent)
    name = next(iter(own))
    save_file({name: own[name]}, former / file)
    with pytest.raises(PretrainError, match="other sizes"):
        packing.pack(averaged, tmp_path / "out", report=silent)


def test_rounding_twice_changes_nothing_more(packed: Path):
    speech = [torch.randn(16_000, generator=torch.Generator().manual_seed(0)) * 0.1]
    precision.store_rounded(packed / "speech_tokenizer")
    model = VoiceModel.load(packed, precision="fp32", device="cpu")
    agreement = precision.compare_rounded(model.speech_tokenizer, speech)
    assert agreement.codes_kept == 1.0
    assert agreement.distance_gained == 0.0


def test_an_encoder_that_cannot_be_rounded_stays_exact(
    sources: packing.Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    unharmed = precision.compare_rounded

    def compare(tokenizer: SpeechTokenizer, speech: list[torch.Tensor], part: str) -> precision.Agreement:
        found = unharmed(tokenizer, speech, part)
        return found if part == precision.DECODER else found._replace(codes_kept=0.5)

    monkeypatch.setattr(precision, "compare_rounded", compare)
    packing.pack(sources, tmp_path / "mini", report=silent)
    weights = load_file(tmp_path / "mini" / "speech_tokenizer" / "model.safetensors")
    encoder = {one.dtype for name, one in weights.items() if name.startswith("encoder.")}
    assert encoder == {torch.float32}
    assert weights["decoder.decoder.0.conv.weight"].dtype == torch.bfloat16
    assert not any(one.dtype == torch.bfloat16 for name, one in weights.items() if "codebook" in name)
    assert "float32 (encoder) and bfloat16 (decoder)" in (tmp_path / "mini" / "README.md").read_text()
    assert VoiceModel.load(tmp_path / "mini", precision="fp32", device="cpu").sample_rate == 16_000


def test_what_is_too_large_is_not_packed(sources: packing.Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packing, "MAX_BYTES", 10_000)
    with pytest.raises(PretrainError, match="the limit is 10,000"):
        packing.pack(sources, tmp_path / "mini", report=silent)
    assert not (tmp_path / "mini").exists()


def test_a_folder_with_something_else_is_not_replaced(
    sources: packing.Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    runs = ["--tokenizer", str(sources.tokenizer), "--talker", str(sources.talker)]
    assert command_line.main(["pack", *runs, "--out", str(tmp_path)]) == 1
    assert "it is not a checkpoint" in capsys.readouterr().err
    runs = ["--tokenizer", str(sources.tokenizer), "--talker", str(tmp_path)]
    assert command_line.main(["pack", *runs, "--out", str(tmp_path / "mini")]) == 1
    assert "holds no run to pack" in capsys.readouterr().err


def test_a_share_of_no_average_is_refused(sources: packing.Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = ["--tokenizer", str(sources.tokenizer), "--talker", str(sources.talker)]
    assert command_line.main(["pack", *runs, "--average-share", "0.3", "--out", str(tmp_path / "mini")]) == 1
    assert "name it with --average" in capsys.readouterr().err


def test_a_long_log_becomes_means_and_keeps_what_was_measured():
    lines = [{"step": step, "loss": float(step)} for step in range(1, 361)]
    lines.insert(100, {"step": 100, "validation/part": 3.0})
    short = thinned(lines)
    assert len([line for line in short if "loss" in line]) == 120
    assert short[0] == {"step": 3, "loss": 2.0}
    assert {"step": 100, "validation/part": 3.0} in short
    assert [line["step"] for line in short] == sorted(line["step"] for line in short)
