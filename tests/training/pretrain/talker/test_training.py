"""The talker's stage on a corpus of tones: losses fall, a killed run goes on, and what it exports speaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.single_take import Synthesizer
from tests.training.pretrain.tiny_corpus import write_corpus
from training.data.example import IGNORED
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.voice_model import VoiceModel
from training.pretrain import __main__ as command_line
from training.pretrain.codec import frame_codes
from training.pretrain.codec.job import CropShape, TokenizerJob, TokenizerSize
from training.pretrain.codec.read_tokenizer import read_tokenizer
from training.pretrain.codec.training import TokenizerTraining
from training.pretrain.corpus.corpus import PARTS, TRAIN, open_corpus
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_log import read_log
from training.pretrain.talker.batches import BatchSource
from training.pretrain.talker.job import UNCONDITIONAL_SHARE, TalkerJob, TalkerSize
from training.pretrain.talker.network import TalkerNetwork
from training.pretrain.talker.references import (
    Reference,
    ReferenceShelf,
    make_references,
    open_references,
)
from training.pretrain.talker.training import TalkerTraining
from training.pretrain.talker.write_checkpoint import export_checkpoint
from training.tempo import at_tempo

CPU = torch.device("cpu")
TOKENIZER_JOB = TokenizerJob(
    num_steps=2,
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
    crops=(CropShape(share=1, num_crops=2, num_frames=4),),
    validate_every=2,
    log_every=2,
)
JOB = TalkerJob(
    num_steps=12,
    size=TalkerSize(
        width=64, num_layers=1, predictor_width=64, num_predictor_layers=1, speaker_channels=8, codebook_size=16
    ),
    max_positions=200,
    in_context_ratio=0.5,
    num_warmup_steps=2,
    validate_every=6,
    log_every=2,
)
DEEPER = JOB.model_copy(update={"size": JOB.size.model_copy(update={"num_predictor_layers": 2})})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "tones")


@pytest.fixture(scope="module")
def tokenizer(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("tokenizer")
    torch.set_num_threads(1)
    training = TokenizerTraining(TOKENIZER_JOB, corpus, run, device=CPU, compiled=False, report=lambda line: None)
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False)
    return run


def open_training(corpus: Path, tokenizer: Path, run: Path, job: TalkerJob = JOB, start: Path | None = None):
    return TalkerTraining(job, corpus, tokenizer, run, device=CPU, report=lambda line: None, start=start)


@pytest.fixture(scope="module")
def finished(corpus: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("talker")
    assert open_training(corpus, tokenizer, run).run(save_every_seconds=1e9, should_stop=lambda: False)
    return run


@pytest.fixture(scope="module")
def source(corpus: Path, tokenizer: Path) -> BatchSource:
    coded = frame_codes.open_codes(corpus, tokenizer, TRAIN)
    references = make_references(coded.corpus, coded.corpus.by_speaker(), read_tokenizer(tokenizer), 4, seed=1)
    return BatchSource(coded, ReferenceShelf(coded.corpus, references), JOB, JOB.size.config())


def test_both_losses_fall(finished: Path):
    lines = [line for line in read_log(finished) if "talker" in line]
    assert lines[-1]["talker"] < lines[0]["talker"]
    assert lines[-1]["code_predictor"] < lines[0]["code_predictor"]


def test_held_out_parts_are_measured_in_both_layouts(finished: Path):
    line = [line for line in read_log(finished) if "validation/x-vector-held-out-voice" in line][-1]
    for part in PARTS:
        if part != TRAIN:
            assert f"validation/x-vector-{part}" in line
            assert f"validation/codes/in-context-{part}" in line


def test_a_share_of_the_utterances_is_learnt_without_text_and_speaker(corpus: Path, tokenizer: Path):
    coded = frame_codes.open_codes(corpus, tokenizer, TRAIN)
    references = make_references(coded.corpus, coded.corpus.by_speaker(), read_tokenizer(tokenizer), 4, seed=1)
    job = JOB.model_copy(update={"unconditional_share": 0.5, "max_positions": 10_000})
    source = BatchSource(coded, ReferenceShelf(coded.corpus, references), job, job.size.config())
    numbers = range(source.num_utterances)
    for is_paired in (False, True):
        batch = source.examples(numbers, np.random.default_rng(3), is_paired=is_paired)
        inputs, is_unconditional = batch.examples.inputs, torch.tensor([not spans for spans in batch.spans])
        assert 0 < is_unconditional.sum() < len(is_unconditional)
        assert torch.equal(inputs.is_speaker.any(-1), ~is_unconditional)
        # Bytes of a text are its tokens; what is above them are controls, besides those of the role.
        num_letters = ((inputs.text_ids >= 0) & (inputs.text_ids < 256)).sum(-1)
        assert (num_letters[is_unconditional] == 1).all()
        assert (num_letters[~is_unconditional] > 1).all()
        for row in is_unconditional.nonzero().flatten().tolist():
            codes = inputs.with_first_codebook()[row][inputs.is_frame[row]]
            assert torch.equal(codes, coded.codes(numbers[row]))


def test_a_run_that_learns_it_measures_it_and_is_compared_with_others_on_the_same_speech(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    job = JOB.model_copy(update={"unconditional_share": 1.0, "num_steps": 6})
    training = open_training(corpus, tokenizer, tmp_path, job, start=finished)
    before = training.validate()
    plain = {name: value for name, value in before.items() if "unconditional" not in name}
    assert plain == open_training(corpus, tokenizer, tmp_path / "other", JOB, start=finished).validate()
    # All of a batch is without a text, so attention has nowhere to be guided to.
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False)
    after = training.validate()
    assert all(after[f"unconditional-{part}"] < before[f"unconditional-{part}"] for part in PARTS if part != TRAIN)


def test_a_stopped_run_ends_as_one_that_never_stopped(corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path):
    stopped = open_training(corpus, tokenizer, tmp_path)
    assert not stopped.run(save_every_seconds=1e9, should_stop=lambda: stopped.step >= 6)
    resumed = open_training(corpus, tokenizer, tmp_path)
    assert resumed.step == 6
    assert resumed.run(save_every_seconds=1e9, should_stop=lambda: False)
    assert list(read_log(tmp_path)) == list(read_log(finished))
    expected = load_file(finished / "state" / "model.safetensors")
    found = load_file(tmp_path / "state" / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_another_run_begins_with_the_weights_of_one(corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path):
    other = JOB.model_copy(update={"num_steps": 20, "muon_learning_rate": 1e-3})
    begun = open_training(corpus, tokenizer, tmp_path, other, start=finished)
    assert begun.step == 0
    expected = load_file(finished / "state" / "model.safetensors")
    assert all(torch.equal(value, expected[f"network.{name}"]) for name, value in begun.network.state_dict().items())
    with pytest.raises(PretrainError, match="holds no run to start from"):
        open_training(corpus, tokenizer, tmp_path / "new", other, start=tmp_path / "nothing")


def test_another_run_begins_with_a_checkpoint_and_learns(corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path):
    export_checkpoint(finished, tokenizer, tmp_path / "export")
    begun = open_training(corpus, tokenizer, tmp_path / "run", JOB, start=tmp_path / "export")
    expected = load_file(finished / "state" / "model.safetensors")
    for name, value in begun.network.state_dict().items():
        torch.testing.assert_close(value, expected[f"network.{name}"], rtol=1e-2, atol=1e-2)
    before = begun.network.talker.codec_head.weight.detach().clone()
    begun.train_step()
    assert not torch.equal(begun.network.talker.codec_head.weight, before)


def test_a_speaker_encoder_that_was_trained_alone_stays(corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path):
    job = JOB.model_copy(update={"keeps_speaker_encoder": True})
    run = open_training(corpus, tokenizer, tmp_path, job, start=finished)
    assert run.run(save_every_seconds=1e9, should_stop=lambda: False)
    before, after = (load_file(one / "state" / "model.safetensors") for one in (finished, tmp_path))
    encoder = {name for name in before if name.startswith("network.speaker_encoder.")}
    assert encoder
    assert all(torch.equal(after[name], before[name]) for name in encoder)
    learnt = {name for name in before if "q_proj" in name}
    assert learnt
    assert not any(torch.equal(after[name], before[name]) for name in learnt)


def test_layers_that_are_added_change_nothing_at_first_and_learn(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    start = tmp_path / "export"
    export_checkpoint(finished, tokenizer, start)
    plain = open_training(corpus, tokenizer, tmp_path / "plain", JOB, start=start)
    begun = open_training(corpus, tokenizer, tmp_path / "deeper", DEEPER, start=start)
    assert begun.validate() == plain.validate()
    (added,) = begun.network.talker.code_predictor.model.layers[JOB.size.num_predictor_layers :]
    before = {name: weight.detach().clone() for name, weight in added.named_parameters()}
    for _ in range(2):
        begun.train_step()
        begun.step += 1
    assert all(not torch.equal(weight, before[name]) for name, weight in added.named_parameters())


def test_a_start_with_more_layers_or_other_sizes_is_refused(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    start = tmp_path / "export"
    export_checkpoint(finished, tokenizer, start)
    deeper = tmp_path / "deeper"
    open_training(corpus, tokenizer, deeper, DEEPER, start=start).run(save_every_seconds=1e9, should_stop=lambda: True)
    export_checkpoint(deeper, tokenizer, tmp_path / "export-deeper")
    with pytest.raises(PretrainError, match="--predictor-layers 2"):
        open_training(corpus, tokenizer, tmp_path / "a", JOB, start=tmp_path / "export-deeper")
    wider = JOB.model_copy(update={"size": JOB.size.model_copy(update={"speaker_channels": 16})})
    with pytest.raises(PretrainError, match="other sizes"):
        open_training(corpus, tokenizer, tmp_path / "b", wider, start=start)


def test_batches_fit_and_hold_every_utterance_once_in_a_pass(source: BatchSource):
    for is_paired, batches in ((False, source._single), (True, source._paired)):
        numbers = [int(number) for batch in batches for number in batch]
        assert sorted(numbers) == list(range(source.num_utterances))
        for batch in batches:
            drawn = source.examples(batch.tolist(), np.random.default_rng(0), is_paired=is_paired)
            # References of a pair may be longer than the mean that is reckoned with.
            most = 2 * JOB.max_positions if is_paired else JOB.max_positions
            assert drawn.examples.labels_BT.numel() <= most or len(batch) == 1


def test_nobody_continues_what_is_to_be_said(corpus: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch):
    coded = frame_codes.open_codes(corpus, tokenizer, TRAIN)
    by_speaker = coded.corpus.by_speaker()
    lone, *others = by_speaker
    # The first has one reference: what it says elsewhere may continue it, and not that itself.
    given = {lone: by_speaker[lone][:1], **{name: by_speaker[name] for name in others}}
    shelf = ReferenceShelf(coded.corpus, make_references(coded.corpus, given, read_tokenizer(tokenizer), 2, seed=1))
    drawn: list[tuple[int, tuple[int, ...]]] = []
    draw = ReferenceShelf.draw

    def noted(self: ReferenceShelf, speaker: str, number: int, wanted_frames: int) -> Reference:
        found = draw(self, speaker, number, wanted_frames)
        drawn.append((number, found.members))
        return found

    monkeypatch.setattr(ReferenceShelf, "draw", noted)
    source = BatchSource(coded, shelf, JOB.model_copy(update={"in_context_ratio": 1.0}), JOB.size.config())
    for step in range(2 * len(source._paired)):
        source.batch(step)
    assert drawn
    assert all(number not in members for number, members in drawn)
    assert {number for number, _ in drawn} == set(range(len(coded))) - set(given[lone])


def test_a_speaker_encoder_that_was_trained_alone_can_learn_more_slowly(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    moved = {}
    for rate in (0.1, 1.0):
        job = JOB.model_copy(update={"speaker_encoder_rate": rate, "num_warmup_steps": 1})
        training = open_training(corpus, tokenizer, tmp_path / str(rate), job, start=finished)
        parts = {"encoder": training.network.speaker_encoder, "talker": training.network.talker}
        before = {name: torch.cat([one.flatten() for one in part.parameters()]) for name, part in parts.items()}
        learning = {
            id(one) for opt in training.optimizers.values() for group in opt.param_groups for one in group["params"]
        }
        assert learning == {id(one) for one in training.network.parameters() if one.requires_grad}
        training.train_step()
        after = {name: torch.cat([one.flatten() for one in part.parameters()]) for name, part in parts.items()}
        moved[rate] = {name: float((after[name] - before[name]).detach().norm()) for name in parts}
    assert moved[0.1]["talker"] == pytest.approx(moved[1.0]["talker"], rel=1e-3)
    assert moved[0.1]["encoder"] == pytest.approx(0.1 * moved[1.0]["encoder"], rel=1e-2)


def test_a_step_draws_the_same_batch_whenever_it_is_done(source: BatchSource):
    one, other = source.batch(3), source.batch(3)
    assert torch.equal(one.examples.labels_BT, other.examples.labels_BT)
    assert torch.equal(one.reference_mel, other.reference_mel)


def test_references_are_stored_with_the_run_and_never_contain_their_continuation(
    corpus: Path, tokenizer: Path, tmp_path: Path
):
    speech, encoder = open_corpus(corpus), read_tokenizer(tokenizer)
    made = open_references(speech, encoder, tmp_path, per_speaker=6, seed=3, report=lambda line: None)
    # Read back, not made again: the encoder is gone.
    kept = open_references(speech, None, tmp_path, per_speaker=6, seed=3, report=lambda line: None)
    for number in range(len(speech)):
        one, other = (shelf.draw("tone-0", number, wanted_frames=30) for shelf in (made, kept))
        assert number not in one.members
        assert one.members == other.members
        assert torch.equal(one.codes, other.codes)
        assert one.text == " ".join(speech.entries[member].text for member in one.members)
    shortest, longest = (kept.draw("tone-0", 0, wanted_frames=wanted) for wanted in (0, 1000))
    assert len(shortest.codes) < len(longest.codes)
    assert len(longest.members) > 1


def test_references_are_joined_where_none_is_as_long_as_wanted(source: BatchSource):
    shelf = source._shelf
    number = 0
    single = max(
        (one for one in shelf._by_speaker["tone-0"] if number not in one.members), key=lambda one: len(one.codes)
    )
    wanted = 2 * len(single.codes) + 1
    joined = shelf.draw("tone-0", number, wanted)
    assert len(single.codes) < len(joined.codes) <= wanted
    assert number not in joined.members
    assert joined.text == " ".join(source._coded.corpus.entries[member].text.strip() for member in joined.members)


def test_behind_long_references_fewer_utterances_have_room(source: BatchSource, monkeypatch: pytest.MonkeyPatch):
    numbers = list(range(len(source._coded)))
    monkeypatch.setattr(source, "_job", source._job.model_copy(update={"max_positions": 1_000_000}))
    every = source.examples(numbers, np.random.default_rng(0), is_paired=True).examples.labels_BT
    assert len(every) == len(numbers)
    job = source._job.model_copy(update={"max_positions": every.shape[1] * 2})
    monkeypatch.setattr(source, "_job", job)
    some = source.examples(numbers, np.random.default_rng(0), is_paired=True).examples.labels_BT
    assert 1 <= len(some) < len(every)
    assert some.numel() <= 1.25 * job.max_positions


@pytest.mark.parametrize(
    ("option", "value", "match"),
    [
        ("--predictor-layers", "0", "num_predictor_layers"),
        ("--in-context-ratio", "2", "in_context_ratio"),
        ("--references-per-speaker", "-1", "references_per_speaker"),
        ("--steps", "0", "num_steps"),
        ("--start-codes", "codec", "name the talker with --start"),
    ],
)
def test_an_option_that_is_out_of_range_is_one_sentence(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, match: str
):
    folders = ["--corpus", str(corpus), "--tokenizer", str(tmp_path / "none"), "--out", str(tmp_path / "run")]
    assert command_line.main(["talker", *folders, option, value, "--device", "cpu"]) == 1
    told = capsys.readouterr().err
    assert match in told
    assert told.count("\n") == 1


def test_a_rate_for_a_speaker_encoder_that_is_kept_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folders = [f"--{name}={tmp_path / name}" for name in ("corpus", "tokenizer", "out")]
    options = ["--keep-speaker-encoder", "--speaker-encoder-rate", "0.5", "--device", "cpu"]
    assert command_line.main(["talker", *folders, *options]) == 1
    assert "leave out --speaker-encoder-rate" in capsys.readouterr().err


def test_the_answer_is_the_utterance_and_its_end(source: BatchSource):

    batch = source.examples([2], np.random.default_rng(0), is_paired=False)
    labels = batch.examples.labels_BT[0]
    codes = source._coded.codes(2)
    assert labels[labels != IGNORED].tolist() == [*codes[:, 0].tolist(), JOB.size.config().talker.codec_eos_token_id]


def test_the_export_loads_strictly_clones_and_speaks(tokenizer: Path, finished: Path, tmp_path: Path):
    steps = export_checkpoint(finished, tokenizer, tmp_path / "export")
    assert steps == (JOB.num_steps, TOKENIZER_JOB.num_steps)
    model = VoiceModel.load(tmp_path / "export", device="cpu")
    voice = VoicePrompt(speaker=model.embed_speaker(torch.randn(24_000)))
    request = TakeRequest(text="hum", voice=voice, language="english", seed=1, max_frames=5)
    take = Synthesizer(model).speak(request)
    assert 0 < len(take.waveform) <= 5 * 1280


def test_exporting_without_a_run_is_refused(tokenizer: Path, tmp_path: Path):
    with pytest.raises(PretrainError, match="holds no run to export"):
        export_checkpoint(tmp_path, tokenizer, tmp_path / "export")


def test_the_command_names_what_is_missing(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folders = ["--corpus", str(corpus), "--tokenizer", str(tmp_path / "none"), "--out", str(tmp_path / "run")]
    assert command_line.main(["talker", *folders, "--device", "cpu"]) == 1
    assert "Run the tokenizer stage first" in capsys.readouterr().err


@pytest.mark.parametrize(("analysed_share", "encodes"), [(0.0, True), (0.5, False)])
def test_a_talker_learns_the_codes_that_its_decoder_knows(
    corpus: Path, tmp_path: Path, analysed_share: float, encodes: bool
):
    job = TOKENIZER_JOB.model_copy(update={"joint_from": 0.0, "analysed_share": analysed_share})
    codec = TokenizerTraining(job, corpus, tmp_path / "codec", device=CPU, compiled=False, report=lambda line: None)
    assert codec.run(save_every_seconds=1e9, should_stop=lambda: False)
    open_training(corpus, tmp_path / "codec", tmp_path / "talker")
    assert (tmp_path / "talker" / "codes").is_dir() == encodes


def test_a_talker_goes_on_with_codes_that_were_learnt_since(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    job = TOKENIZER_JOB.model_copy(update={"joint_from": 0.0, "codebooks_learn": True})
    codec = TokenizerTraining(job, corpus, tmp_path / "codec", device=CPU, compiled=False, report=lambda line: None)
    assert codec.run(save_every_seconds=1e9, should_stop=lambda: False)
    told: list[str] = []
    talkers = [
        TalkerTraining(
            JOB, corpus, tmp_path / "codec", tmp_path / name, device=CPU, report=told.append, start=finished, **options
        ).network.talker
        for name, options in (("as-it-is", {}), ("carried-over", {"start_codes": tokenizer}))
    ]
    assert told.count("carrying its tables over to other codes") == 1
    before = frame_codes.open_codes(corpus, tokenizer, TRAIN)
    after = frame_codes.open_codes(corpus, tmp_path / "carried-over", TRAIN)
    pairs = [(before.codes(number), after.codes(number)) for number in range(len(after))]
    known = [talkers[0].code_predictor.sum_residual(codes) for codes, _ in pairs]
    missed = [
        sum(
            float((talker.code_predictor.sum_residual(codes) - one).detach().square().sum())
            for one, (_, codes) in zip(known, pairs, strict=True)
        )
        for talker in talkers
    ]
    assert missed[1] < 0.5 * missed[0]


@pytest.mark.parametrize("pace", [0.8, 1.25])
def test_what_is_learnt_can_have_another_pace_than_the_recordings(
    corpus: Path, tokenizer: Path, tmp_path: Path, pace: float
):
    job = JOB.model_copy(update={"pace": pace})
    training = open_training(corpus, tokenizer, tmp_path, job)
    paced = frame_codes.open_codes(corpus, tmp_path, TRAIN, pace=pace)
    encoder = read_tokenizer(tokenizer)
    for number, entry in enumerate(paced.corpus.entries):
        samples = frame_codes.samples_of(paced.corpus, number).numpy()
        changed = torch.from_numpy(at_tempo(samples, pace, SAMPLE_RATE_HZ))
        assert len(changed) == round(entry.num_samples / pace)
        assert torch.equal(paced.codes(number), encoder.encode([changed])[0])
    num_frames = frame_codes.open_codes(corpus, tokenizer, TRAIN).num_frames
    assert float(paced.num_frames.sum() / num_frames.sum()) == pytest.approx(1 / pace, rel=0.1)
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False)
    # What is continued stays at the pace of the recordings.
    references = open_references(paced.corpus, encoder, tmp_path, per_speaker=3, seed=JOB.seed, report=print)
    made = make_references(paced.corpus, paced.corpus.by_speaker(), encoder, 3, seed=JOB.seed)
    anew = ReferenceShelf(paced.corpus, made)
    for number, entry in enumerate(paced.corpus.entries):
        one, other = (shelf.draw(entry.speaker, number, wanted_frames=30) for shelf in (references, anew))
        assert one.members == other.members
        assert torch.equal(one.codes, other.codes)


def test_tables_are_carried_over_by_what_was_recorded_whatever_the_pace(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    job = TOKENIZER_JOB.model_copy(update={"joint_from": 0.0, "codebooks_learn": True})
    codec = TokenizerTraining(job, corpus, tmp_path / "codec", device=CPU, compiled=False, report=lambda line: None)
    assert codec.run(save_every_seconds=1e9, should_stop=lambda: False)
    plain, slower = (
        TalkerTraining(
            JOB.model_copy(update={"pace": pace}),
            corpus,
            tmp_path / "codec",
            tmp_path / str(pace),
            device=CPU,
            report=lambda line: None,
            start=finished,
            start_codes=tokenizer,
        ).network.talker.state_dict()
        for pace in (1.0, 0.8)
    )
    assert all(torch.equal(slower[name], weight) for name, weight in plain.items())


def test_a_talker_learns_the_codes_of_a_checkpoint_s_encoder(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    checkpoint, run = tmp_path / "checkpoint", tmp_path / "run"
    export_checkpoint(finished, tokenizer, checkpoint)
    training = open_training(corpus, checkpoint, run)
    encoder, coded = read_tokenizer(checkpoint), frame_codes.open_codes(corpus, run, TRAIN)
    for number in range(len(coded)):
        assert torch.equal(coded.codes(number), encoder.encode([frame_codes.samples_of(coded.corpus, number)])[0])
    assert training.run(save_every_seconds=1e9, should_stop=lambda: False)
    steps, of_tokenizer = export_checkpoint(run, checkpoint, tmp_path / "export")
    assert (steps, of_tokenizer) == (JOB.num_steps, 0)
    config = "speech_tokenizer/config.json"
    assert (tmp_path / "export" / config).read_text() == (checkpoint / config).read_text()


def test_a_tokenizer_that_is_neither_a_run_nor_a_checkpoint_is_named(tmp_path: Path):
    with pytest.raises(PretrainError, match=r"holds no speech tokenizer.*Run the tokenizer stage first"):
        read_tokenizer(tmp_path)


def test_codes_of_another_pace_are_not_taken_for_the_run_s_own(corpus: Path, tokenizer: Path, tmp_path: Path):
    frame_codes.encode(corpus, tmp_path, read_tokenizer(tokenizer), PARTS, print, pace=0.8)
    with pytest.raises(PretrainError, match=r"another pace.*Choose another folder"):
        open_training(corpus, tokenizer, tmp_path, JOB.model_copy(update={"pace": 1.25}))
    with pytest.raises(PretrainError, match="another pace"):
        frame_codes.open_codes(corpus, tmp_path, TRAIN)


def test_what_the_network_hears_makes_a_difference(source: BatchSource):
    torch.manual_seed(2)
    network, batch = TalkerNetwork(JOB), source.batch(1)
    plain, again, found = (
        network(batch, torch.Generator().manual_seed(1), misheard_share=share).talker for share in (0.0, 0.0, 0.4)
    )
    assert torch.equal(plain, again)
    assert not torch.allclose(found, plain, atol=1e-6)


def test_a_run_is_gone_on_with_at_the_share_that_it_was_begun_with(
    corpus: Path, tokenizer: Path, finished: Path, tmp_path: Path
):
    assert TalkerJob.share_for(tmp_path / "new", None) == UNCONDITIONAL_SHARE
    assert TalkerJob.share_for(tmp_path / "new", 0.3) == 0.3
    # As runs from before there was any.
    assert TalkerJob.share_for(finished, None) == 0
    job = JOB.model_copy(update={"unconditional_share": 0.25, "num_steps": 2})
    assert open_training(corpus, tokenizer, tmp_path, job).run(save_every_seconds=1e9, should_stop=lambda: False)
    assert TalkerJob.share_for(tmp_path, None) == 0.25
    assert TalkerJob.share_for(tmp_path, 0.0) == 0


@pytest.mark.parametrize("pace", [0.0, 0.4, 2.1, float("nan")])
def test_a_pace_that_nobody_speaks_at_is_refused(pace: float):
    with pytest.raises(PretrainError, match="pace"):
        TalkerJob.of_length(100, pace=pace)


def test_a_talker_that_goes_on_may_learn_more_slowly():
    slower = JOB.at_learning_rate(JOB.muon_learning_rate / 2)
    assert slower.peak_learning_rate == pytest.approx(JOB.peak_learning_rate / 2)
    assert JOB.at_learning_rate(JOB.muon_learning_rate) == JOB
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PretrainError, match="choose one above 0"):
            JOB.at_learning_rate(wrong)
