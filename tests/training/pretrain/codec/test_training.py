import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.pretrain.tiny_corpus import write_corpus
from training.model.checkpoint.reading import find_weights, load_weights, read_speech_tokenizer_config
from training.model.codec.speech_tokenizer import SpeechTokenizer
from training.pretrain import __main__ as command_line
from training.pretrain.codec.command import train
from training.pretrain.codec.crops import Crops
from training.pretrain.codec.evaluation import PARTS
from training.pretrain.codec.job import CropShape, TokenizerJob, TokenizerSize
from training.pretrain.codec.network import TokenizerNetwork
from training.pretrain.codec.training import TokenizerTraining
from training.pretrain.codec.widening import widen
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_log import read_log
from training.pretrain.run.training_state import read_job

CPU = torch.device("cpu")
JOB = TokenizerJob(
    num_steps=20,
    size=TokenizerSize(
        num_filters=2,
        hidden_size=16,
        num_layers=1,
        head_dim=8,
        codebook_size=16,
        codebook_width=8,
        decoder_size=16,
        decoder_window_frames=4,
        discriminator_width=2,
    ),
    crops=(CropShape(share=2, num_crops=3, num_frames=4), CropShape(share=1, num_crops=1, num_frames=8)),
    muon_learning_rate=0.01,
    num_warmup_steps=4,
    peak_learning_rate=2e-3,
    validate_every=12,
    log_every=4,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tones")


def run(job: TokenizerJob, corpus: Path, out: Path, save_every_seconds: float = 1e9) -> int:
    return train(job, corpus, out, device=CPU, compiled=False, save_every_seconds=save_every_seconds)


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    out = tmp_path_factory.mktemp("finished")
    # A fixture of a module is made before the one that does this for each test.
    torch.set_num_threads(1)
    assert run(JOB, corpus, out) == 0
    return out


def load_exported(out: Path) -> SpeechTokenizer:
    tokenizer = SpeechTokenizer(read_speech_tokenizer_config(out))
    load_weights(tokenizer, find_weights(out / "speech_tokenizer"), "", dtype=torch.float32, device="cpu")
    return tokenizer


def test_losses_fall(finished: Path):
    lines = [line for line in read_log(finished) if "spectral" in line]
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 20]
    assert lines[-1]["spectral"] < 0.9 * lines[0]["spectral"]
    assert lines[-1]["codebook_0"] + lines[-1]["imitation"] < lines[0]["codebook_0"] + lines[0]["imitation"]
    assert lines[-1]["waveform"] < lines[0]["waveform"]


def test_held_out_speech_is_judged_by_part_and_codebook(finished: Path):
    lines = [line for line in read_log(finished) if "validation/perplexity/0" in line]
    assert [line["step"] for line in lines] == [12, 20]
    for part in PARTS:
        assert lines[-1][f"validation/{part}"] < lines[0][f"validation/{part}"]
        assert (finished / "samples" / f"{part}-0-resynthesis.wav").is_file()


class Killed(BaseException):
    """Ends a run as abruptly as a test can without taking the interpreter along."""


def test_a_killed_run_continues_to_the_same_losses_and_weights(
    corpus: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every line of the log saves here, so what was done since the last line is lost and done again."""
    unharmed = TokenizerTraining.train_step

    def train_step(training: TokenizerTraining) -> dict[str, float]:
        if training.step == 11:
            raise Killed
        return unharmed(training)

    with monkeypatch.context() as patch:
        patch.setattr(TokenizerTraining, "train_step", train_step)
        with pytest.raises(Killed):
            run(JOB, corpus, tmp_path, save_every_seconds=0)
    # As if the log had got further than the state.
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"step": 18, "spectral": 9.0}\n{"step": 19, "spec')
    assert run(JOB, corpus, tmp_path) == 0
    assert list(read_log(tmp_path)) == list(read_log(finished))
    resumed = load_file(tmp_path / "state" / "model.safetensors")
    for name, expected in load_file(finished / "state" / "model.safetensors").items():
        assert torch.equal(resumed[name], expected), name


def test_a_run_told_to_stop_saves_and_says_how_to_go_on(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    unharmed = TokenizerTraining.train_step

    def train_step(training: TokenizerTraining) -> dict[str, float]:
        if training.step == 5:
            signal.raise_signal(signal.SIGTERM)
        return unharmed(training)

    monkeypatch.setattr(TokenizerTraining, "train_step", train_step)
    before = signal.getsignal(signal.SIGTERM)
    assert run(JOB, corpus, tmp_path) == 3
    assert signal.getsignal(signal.SIGTERM) == before
    assert "stopped after step 8; the same command continues" in capsys.readouterr().out
    assert json.loads((tmp_path / "state" / "job.json").read_text())["step"] == 8


def test_another_recipe_does_not_continue_a_run(corpus: Path, finished: Path):
    other = JOB.model_copy(update={"peak_learning_rate": 1e-3})
    with pytest.raises(PretrainError, match=r"peak_learning_rate 0\.002 instead of 0\.001"):
        run(other, corpus, finished)


def test_a_run_from_before_an_option_is_continued(corpus: Path, finished: Path, tmp_path: Path):
    run_before = shutil.copytree(finished, tmp_path / "run")
    path = run_before / "state" / "job.json"
    about = json.loads(path.read_text())
    del about["job"]["bfloat16"]
    path.write_text(json.dumps(about))
    training = TokenizerTraining(JOB, corpus, run_before, device=CPU, compiled=False, report=lambda line: None)
    assert training.step == JOB.num_steps


def test_a_diverged_run_stops_and_keeps_its_state(corpus: Path, tmp_path: Path):
    job = JOB.model_copy(update={"peak_learning_rate": 1e30, "muon_learning_rate": 1e30, "max_gradient_norm": 1e30})
    with pytest.raises(PretrainError, match="diverged at step"):
        run(job, corpus, tmp_path)


def test_the_export_loads_strictly_and_has_one_set_of_codebooks(finished: Path):
    tokenizer = load_exported(finished)
    weights = load_file(finished / "speech_tokenizer" / "model.safetensors")
    for number in range(16):
        half = ("semantic", "first", 0) if number == 0 else ("acoustic", "rest", number - 1)
        encoder = f"encoder.quantizer.{half[0]}_residual_vector_quantizer.layers.{half[2]}.codebook"
        decoder = f"decoder.quantizer.rvq_{half[1]}.vq.layers.{half[2]}._codebook"
        assert torch.equal(weights[f"{encoder}.embed_sum"], weights[f"{decoder}.embedding_sum"])
        assert torch.equal(weights[f"{encoder}.cluster_usage"], weights[f"{decoder}.cluster_usage"])
    assert tokenizer.config.frame_rate_hz == 12.5


@pytest.mark.parametrize("num_samples", [1, 1280, 1281, 20_000])
def test_the_export_encodes_and_decodes(num_samples: int, finished: Path):
    tokenizer = load_exported(finished)
    waveform = torch.randn(num_samples, generator=torch.Generator().manual_seed(0)) * 0.1
    codes = tokenizer.encode([waveform])[0]
    num_frames = -(-num_samples // 1280)
    assert codes.shape == (num_frames, 16)
    assert tokenizer.decode(codes.unsqueeze(0)).shape == (1, 1280 * num_frames)


def test_the_export_makes_the_codes_that_training_ended_with(corpus: Path, finished: Path):
    training = TokenizerTraining(JOB, corpus, finished, device=CPU, compiled=False, report=lambda line: None)
    assert training.step == JOB.num_steps
    waveform = torch.randn(13 * 1280, generator=torch.Generator().manual_seed(0)) * 0.1
    expected = training.network.tokenizer.encode([waveform])[0]
    assert torch.equal(load_exported(finished).encode([waveform])[0], expected)


def test_discriminators_are_trained_and_resumed_with_the_rest(corpus: Path, tmp_path: Path):
    changes = {
        "adversarial": True,
        "num_steps_before_discriminators": 1,
        "num_steps": 6,
        "log_every": 2,
        "validate_every": 6,
    }
    job = JOB.model_copy(update=changes)
    whole = TokenizerTraining(job, corpus, tmp_path / "whole", device=CPU, compiled=False, report=print)
    assert whole.run(save_every_seconds=1e9, should_stop=lambda: False)
    stopped = TokenizerTraining(job, corpus, tmp_path / "stopped", device=CPU, compiled=False, report=print)
    assert not stopped.run(save_every_seconds=1e9, should_stop=lambda: stopped.step >= 4)
    resumed = TokenizerTraining(job, corpus, tmp_path / "stopped", device=CPU, compiled=False, report=print)
    assert resumed.step == 4
    assert resumed.run(save_every_seconds=1e9, should_stop=lambda: False)
    lines = list(read_log(tmp_path / "whole"))
    assert list(read_log(tmp_path / "stopped")) == lines
    assert ["discriminator" in line for line in lines if "spectral" in line] == [True, True, True]


@pytest.mark.parametrize(("ratio", "most"), [(1.0, 3), (0.7, 2), (0.1, 1)])
def test_discriminators_judge_a_share_of_the_crops(corpus: Path, tmp_path: Path, ratio: float, most: int):
    changes = {"adversarial": True, "num_steps_before_discriminators": 0, "num_steps": 8, "validate_every": 8}
    job = JOB.model_copy(update={**changes, "discriminated_ratio": ratio})
    training = TokenizerTraining(job, corpus, tmp_path, device=CPU, compiled=False, report=print)
    rows: list[int] = []
    training.networks["discriminators"].register_forward_pre_hook(lambda _, heard: rows.append(len(heard[0])))
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False)
    assert max(rows) == most
    # What is decoded for them, once for their update and once for the decoder's, and what was recorded.
    assert len(rows) == 3 * job.num_steps


def test_a_run_saved_with_the_former_names_resumes(corpus: Path, tmp_path: Path):
    changes = {"adversarial": True, "num_steps_before_discriminators": 1, "log_every": 1, "validate_every": 4}
    job = JOB.model_copy(update={**changes, "num_steps": 4})
    stopped = TokenizerTraining(job, corpus, tmp_path, device=CPU, compiled=False, report=print)
    assert not stopped.run(save_every_seconds=1e9, should_stop=lambda: stopped.step >= 2)
    state = tmp_path / "state"
    text = (state / "job.json").read_text()
    for now, former in (
        ("discriminator_width", "adversary_width"),
        ("discriminator_learning_rate", "adversary_learning_rate"),
        ("num_steps_before_discriminators", "num_steps_before_opponents"),
        ("codebook_0_weight", "first_code_weight"),
        ("dropout_ratio", "dropout_share"),
        ("min_lr_ratio", "final_share"),
    ):
        assert f'"{now}"' in text
        text = text.replace(f'"{now}"', f'"{former}"')
    assert '"long_windows_below_hz": 0.0' in text
    text = text.replace('"long_windows_below_hz": 0.0', '"long_windows": false')
    (state / "job.json").write_text(text)
    weights = load_file(state / "model.safetensors")
    former = {
        f"adversary.opponents.{name.removeprefix('discriminators.')}"
        if name.startswith("discriminators.")
        else name: one
        for name, one in weights.items()
    }
    assert former.keys() != weights.keys()
    save_file(former, state / "model.safetensors")
    optimizers = torch.load(state / "optimizer.pt", weights_only=True)
    optimizers["adversary/adamw"] = optimizers.pop("discriminators/adamw")
    torch.save(optimizers, state / "optimizer.pt")

    resumed = TokenizerTraining(job, corpus, tmp_path, device=CPU, compiled=False, report=print)

    assert resumed.step == 2
    for name, network in stopped.networks.items():
        own = resumed.networks[name].state_dict()
        assert all(torch.equal(value, own[key]) for key, value in network.state_dict().items())
    assert resumed.run(save_every_seconds=1e9, should_stop=lambda: False)


def test_a_wider_decoder_learns_alone_from_where_another_run_ended(corpus: Path, finished: Path, tmp_path: Path):
    size = JOB.size.model_copy(update={"decoder_size": 32})
    changes = {"size": size, "decoder_only": True, "bfloat16": True, "num_steps": 8, "num_warmup_steps": 1}
    job = JOB.model_copy(update={**changes, "log_every": 4, "validate_every": 8})
    start = finished / "speech_tokenizer"
    status = train(job, corpus, tmp_path, device=CPU, compiled=False, save_every_seconds=1e9, start=start)
    assert status == 0
    lines = [line for line in read_log(tmp_path) if "spectral" in line]
    ended = [line["spectral"] for line in read_log(finished) if "spectral" in line][-1]
    assert lines[-1]["spectral"] < 1.1 * ended
    assert "imitation" not in lines[-1]
    before, after = (load_file(folder / "model.safetensors") for folder in (start, tmp_path / "speech_tokenizer"))
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("encoder."))
    assert after["decoder.decoder.0.conv.weight"].shape[0] == 32


def test_a_decoder_hears_the_codes_of_the_encoder_that_it_will_be_used_with(
    corpus: Path, finished: Path, tmp_path: Path
):
    changes = {"decoder_only": True, "joint_from": 0.0, "dropout_ratio": 0.0, "num_steps": 4, "num_warmup_steps": 1}
    only_encoded = JOB.model_copy(update={**changes, "validate_every": 4})
    start = finished / "speech_tokenizer"
    assert train(only_encoded, corpus, tmp_path, device=CPU, compiled=False, save_every_seconds=1e9, start=start) == 0
    before, after = (load_file(folder / "model.safetensors") for folder in (start, tmp_path / "speech_tokenizer"))
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("encoder."))
    network = TokenizerNetwork(only_encoded).eval()
    load_weights(network.tokenizer, find_weights(start), "", dtype=torch.float32, device="cpu")
    waveform = torch.randn(2, 4 * 1280, generator=torch.Generator().manual_seed(0)) * 0.1
    codes = torch.randint(16, (2, 4, 16), generator=torch.Generator().manual_seed(1))
    crops = Crops(waveform, codes, torch.ones(2, 1), torch.ones(2, dtype=torch.bool))
    # What the decoder is given, in place of what it makes of it: after a few steps it hardly listens.
    network._decode_latents = lambda latents: latents
    latents = network.tokenizer.decoder.quantizer.decode
    encoded = latents(torch.stack(network.tokenizer.encode(list(waveform))))
    analysed = latents(codes)
    assert not torch.allclose(analysed, encoded, atol=1e-3)
    for job, is_joint, expected in (
        (only_encoded, True, encoded),
        (only_encoded, False, analysed),
        (only_encoded.model_copy(update={"analysed_share": 1.0}), True, analysed),
    ):
        network.job = job
        given = network(crops, torch.Generator().manual_seed(0), joint=is_joint).waveform
        assert torch.allclose(given, expected, atol=1e-5)


def test_an_encoder_learns_alone(corpus: Path, tmp_path: Path):
    job = JOB.model_copy(update={"encoder_only": True, "num_steps": 24, "validate_every": 24})
    assert run(job, corpus, tmp_path) == 0
    lines = [line for line in read_log(tmp_path) if "imitation" in line]
    assert "spectral" not in lines[0]
    assert lines[-1]["imitation"] < 0.8 * lines[0]["imitation"]


def test_a_wider_encoder_keeps_the_decoder_of_another_run(corpus: Path, finished: Path, tmp_path: Path):
    size = JOB.size.model_copy(update={"num_filters": 4})
    changes = {"size": size, "encoder_only": True, "num_steps": 4, "num_warmup_steps": 1, "validate_every": 4}
    start = finished / "speech_tokenizer"
    job = JOB.model_copy(update=changes)
    assert train(job, corpus, tmp_path, device=CPU, compiled=False, save_every_seconds=1e9, start=start) == 0
    before, after = (load_file(folder / "model.safetensors") for folder in (start, tmp_path / "speech_tokenizer"))
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("decoder."))
    assert all(torch.equal(before[name], after[name]) for name in before if "codebook" in name)
    narrow, wide = (weights["encoder.encoder.layers.0.conv.weight"] for weights in (before, after))
    assert (len(narrow), len(wide)) == (2, 4)
    assert not torch.equal(wide[:2], narrow)


def test_the_command_trains_continues_nothing_and_evaluates(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folders = ["--corpus", str(corpus), "--out", str(tmp_path / "run")]
    assert command_line.main(["tokenizer", *folders, "--evaluate"]) == 1
    assert "holds no run to evaluate" in capsys.readouterr().err
    assert command_line.main(["tokenizer", *folders, "--steps", "0"]) == 1
    assert "num_steps" in capsys.readouterr().err
    for wrong in ("nan", "1.5"):
        assert command_line.main(["tokenizer", *folders, "--adversarial-from", wrong]) == 1
        assert "a share of the run" in capsys.readouterr().err
    assert command_line.main(["tokenizer", *folders, "--discriminated-ratio", "0"]) == 1
    assert "discriminated_ratio" in capsys.readouterr().err
    late = ["--adversarial", "--adversarial-from", "0.5", "--discriminator-width", "2", "--discriminated-ratio", "0.5"]
    assert command_line.main(["tokenizer", *folders, "--steps", "2", "--device", "cpu", "--threads", "1", *late]) == 0
    job = read_job(tmp_path / "run")
    assert (job["num_steps_before_discriminators"], job["discriminated_ratio"]) == (1, 0.5)
    trained = capsys.readouterr().out
    assert "2 of 2: spectral" in trained
    assert (tmp_path / "run" / "losses.svg").is_file()
    # Nothing is left to train, so the same command only measures again.
    assert command_line.main(["tokenizer", *folders, "--evaluate"]) == 0
    assert capsys.readouterr().out.strip() in trained


def test_a_missing_corpus_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert command_line.main(["tokenizer", "--corpus", str(tmp_path), "--out", str(tmp_path / "run")]) == 1
    assert "holds no corpus" in capsys.readouterr().err


def test_encoder_and_decoder_learn_from_each_other_and_the_codebooks_follow(corpus: Path, tmp_path: Path):
    changes = {"joint_from": 0.5, "codebooks_learn": True, "channel_share": 0.5, "num_steps": 16, "validate_every": 16}
    job = JOB.model_copy(update=changes)
    assert run(job, corpus, tmp_path) == 0
    lines = [line for line in read_log(tmp_path) if "spectral" in line]
    assert ["commitment" in line for line in lines] == [False, False, True, True]
    space, state = load_file(tmp_path / "code-space.safetensors"), load_file(tmp_path / "state" / "model.safetensors")
    books = "network.tokenizer.encoder.quantizer.{}_residual_vector_quantizer.layers.{}.codebook.embed_sum"
    assert torch.equal(state[books.format("semantic", 0)], space["codebooks.0.embed_sum"])
    assert not torch.equal(state[books.format("acoustic", 0)], space["codebooks.1.embed_sum"])
    exported = load_exported(tmp_path)
    assert torch.equal(
        exported.encoder.quantizer.acoustic_residual_vector_quantizer.layers[0].codebook.embed_sum,
        state[books.format("acoustic", 0)],
    )


def test_an_encoder_hears_in_float32_what_it_will_hear_in_use():
    torch.manual_seed(5)
    network = TokenizerNetwork(JOB)
    speech = torch.randn(2, 4 * 1280) / 10
    with torch.autocast("cpu", torch.bfloat16):
        trained = network.vectors(speech)
    assert all(map(torch.equal, trained, network.vectors(speech)))


def test_codebooks_that_learn_may_hear_altered_speech(corpus: Path, tmp_path: Path):
    changes = {"joint_from": 0.5, "codebooks_learn": True, "learned_altered_share": 1.0}
    job = JOB.model_copy(update=changes)
    training = TokenizerTraining(job, corpus, tmp_path, device=CPU, compiled=False, report=lambda line: None)
    plain, joint = (crops.batch(0) for crops in (training._plain_crops, training._joint_crops))
    assert plain.waveform.shape == joint.waveform.shape
    assert not torch.equal(plain.waveform, joint.waveform)
    assert joint.is_analysed.all()


def test_codebooks_that_stay_are_those_of_the_start_and_all_else_learns(corpus: Path, finished: Path, tmp_path: Path):
    changes = {"codebooks_stay": True, "joint_from": 0.0, "learned_altered_share": 0.5}
    job = JOB.model_copy(update={**changes, "num_steps": 4, "validate_every": 4, "num_warmup_steps": 1})
    start = finished / "speech_tokenizer"
    assert train(job, corpus, tmp_path, device=CPU, compiled=False, save_every_seconds=1e9, start=start) == 0
    after, before = (load_file(folder / "model.safetensors") for folder in (tmp_path / "speech_tokenizer", start))
    books = {name for name in before if name.endswith(("embed_sum", "cluster_usage", "embedding_sum"))}
    assert books
    assert all(torch.equal(after[name], before[name]) for name in books)
    learnt = {name.split(".")[0] for name in before.keys() - books if not torch.equal(after[name], before[name])}
    assert learnt >= {"encoder", "decoder"}


def test_a_run_may_judge_low_voices_in_long_windows_only(corpus: Path, tmp_path: Path):
    losses = {}
    for below_hz in (0, 1, 400):
        job = JOB.model_copy(update={"long_windows_below_hz": below_hz})
        folder = tmp_path / str(below_hz)
        training = TokenizerTraining(job, corpus, folder, device=CPU, compiled=False, report=lambda line: None)
        losses[below_hz] = training.train_step()
    assert losses[400]["waveform"] == losses[1]["waveform"] == losses[0]["waveform"]
    assert losses[400]["spectral"] < losses[1]["spectral"] == losses[0]["spectral"]


def test_crops_too_short_to_repeat_anything_are_refused():
    one_frame = [CropShape(share=1, num_crops=2, num_frames=1).model_dump()]
    with pytest.raises(ValueError, match="repetition_weight needs crops of two frames"):
        TokenizerJob.model_validate({**JOB.model_dump(), "crops": one_frame, "repetition_weight": 1})


@pytest.mark.parametrize("name", ["periodicity", "repetition"])
def test_a_run_may_ask_for_what_spectra_do_not_hear(name: str, corpus: Path, tmp_path: Path):
    norms = []
    for weight in (0.0, 0.5):
        job = JOB.model_copy(update={f"{name}_weight": weight})
        folder = tmp_path / str(weight)
        training = TokenizerTraining(job, corpus, folder, device=CPU, compiled=False, report=lambda line: None)
        losses = training.train_step()
        assert (name in losses) == (weight > 0)
        norms.append(losses["gradient_norm"])
    assert losses[name] > 0
    assert norms[0] != norms[1]


def test_an_encoder_that_is_heard_gets_gradients_through_the_codes(corpus: Path, tmp_path: Path):
    job = JOB.model_copy(update={"joint_from": 0.0, "heard_imitation_weight": 0.0})
    training = TokenizerTraining(job, corpus, tmp_path, device=CPU, compiled=False, report=lambda line: None)
    crops = training._joint_crops.batch(0)
    heard = training.network(crops, torch.Generator().manual_seed(0), joint=True)
    heard.waveform.square().mean().backward()
    projection = training.network.tokenizer.encoder.quantizer.acoustic_residual_vector_quantizer.input_proj
    assert projection.weight.grad.abs().sum() > 0


def test_a_run_from_a_checkpoint_keeps_its_codes_and_what_they_mean(corpus: Path, finished: Path, tmp_path: Path):
    size = JOB.size.model_copy(update={"num_refinements": 1, "num_layers": 2})
    changes = {"size": size, "num_steps": 4, "validate_every": 4, "num_warmup_steps": 1, "joint_from": 0.0}
    job = JOB.model_copy(update={**changes, "analysed_share": 0.5})
    start = finished / "speech_tokenizer"
    assert train(job, corpus, tmp_path, device=CPU, compiled=False, save_every_seconds=1e9, start=start) == 0
    kept, before = (load_file(folder / "code-space.safetensors") for folder in (tmp_path, finished))
    assert all(torch.equal(kept[name], before[name]) for name in before if name.startswith("codebooks."))
    weights = load_file(tmp_path / "speech_tokenizer" / "model.safetensors")
    assert weights["decoder.upsample.2.0.conv.weight"].shape == (16, 16, 1)
    assert load_exported(tmp_path).config.decoder.upsampling_ratios == (2, 2, 1)


def test_a_deeper_decoder_says_the_same_at_first(finished: Path):
    smaller = load_exported(finished)
    deeper = TokenizerNetwork(JOB.model_copy(update={"size": JOB.size.model_copy(update={"num_refinements": 2})}))
    widen(smaller, deeper.tokenizer)
    codes = torch.randint(16, (1, 9, 16), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(deeper.tokenizer.decode(codes), smaller.decode(codes), rtol=1e-3, atol=1e-4)


def test_a_run_ends_when_its_time_is_over(corpus: Path, tmp_path: Path):
    training = TokenizerTraining(JOB, corpus, tmp_path, device=CPU, compiled=False, report=lambda line: None)
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False, budget_seconds=1e-3)
    assert training.step == 1
    assert training.place >= JOB.num_steps
    again = TokenizerTraining(JOB, corpus, tmp_path, device=CPU, compiled=False, report=lambda line: None)
    assert again.step == 1
    assert json.loads((tmp_path / "state" / "job.json").read_text())["step"] == 1


def test_a_run_whose_time_ends_during_a_validation_saves_its_last_step(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    job = JOB.model_copy(update={"log_every": 1, "validate_every": 1})
    training = TokenizerTraining(job, corpus, tmp_path, device=CPU, compiled=False, report=lambda line: None)

    def validate() -> dict[str, float]:
        clock[0] += 10
        return {}

    training.validate = validate
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False, budget_seconds=5)
    assert json.loads((tmp_path / "state" / "job.json").read_text())["step"] == training.step


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_only": True, "joint_from": 0.5, "channel_share": 0.5},
        {"decoder_only": True, "joint_from": 0.5, "codebooks_learn": True},
        {"decoder_only": True, "joint_from": 0.5, "codebooks_stay": True},
        {"codebooks_learn": True},
        {"codebooks_stay": True},
        {"codebooks_stay": True, "joint_from": 0.5, "codebooks_learn": True},
        {"codebooks_stay": True, "joint_from": 0.5, "analysed_share": 0.5},
        {"joint_from": 1.5},
        {"deepened_share": 0.5},
        {"deepened_share": 0.5, "joint_from": 0.5, "channel_share": 0.5},
        {"encoder_only": True, "decoder_only": True},
        {"encoder_only": True, "joint_from": 0.5},
        {"encoder_only": True, "adversarial": True},
        {"altered_share": 1.5},
        {"learned_altered_share": 0.5, "joint_from": 0.5},
        {"learned_altered_share": 0.5, "joint_from": 0.5, "codebooks_learn": True, "channel_share": 0.5},
    ],
)
def test_recipes_that_contradict_themselves_are_refused(changes: dict[str, object]):
    with pytest.raises(PretrainError, match="cannot be trained"):
        TokenizerJob.of_length(10, **changes)
