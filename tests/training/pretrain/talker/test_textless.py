"""Batches of voices without text: who speaks is told, what is said is not, and no step has too much of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.pretrain.talker.test_training import JOB, corpus, open_training, tokenizer
from tests.training.pretrain.tiny_corpus import write_part
from training.pretrain.codec import frame_codes
from training.pretrain.codec.job import NUM_CODEBOOKS
from training.pretrain.corpus.corpus import OTHER_LANGUAGES, PARTS, open_corpus
from training.pretrain.errors import PretrainError
from training.pretrain.run.training_log import read_log
from training.pretrain.talker.textless import TextlessSource
from training.pretrain.talker.training import TalkerTraining

__all__ = ["corpus", "tokenizer"]

TEXTLESS = JOB.model_copy(update={"textless_share": 0.5})
NUM_UTTERANCES, NUM_SPEAKERS = 24, 3


@pytest.fixture(scope="module")
def foreign(corpus: Path) -> Path:
    if not (corpus / OTHER_LANGUAGES).is_dir():
        write_part(corpus / OTHER_LANGUAGES, NUM_UTTERANCES, shortest_seconds=0.7, text="", num_speakers=NUM_SPEAKERS)
    return corpus


@pytest.fixture(scope="module")
def coded(foreign: Path, tmp_path_factory: pytest.TempPathFactory) -> frame_codes.CodedCorpus:
    """Each utterance has codes that no other one has."""
    folder = tmp_path_factory.mktemp("codes")
    utterances = open_corpus(foreign, OTHER_LANGUAGES)
    size = TEXTLESS.size.codebook_size
    codes = []
    for number, entry in enumerate(utterances.entries):
        own = torch.zeros(frame_codes.frames_of(entry.num_samples), NUM_CODEBOOKS, dtype=torch.long)
        own[:, 0], own[:, 1] = number % size, number // size
        codes.append(own)
    frame_codes.write_codes(frame_codes.shard_codes(folder, 0), codes)
    return frame_codes.CodedCorpus(utterances, folder)


def test_an_example_says_who_speaks_and_not_what(coded: frame_codes.CodedCorpus):
    source = TextlessSource(coded, TEXTLESS, TEXTLESS.size.config())
    num_continued = num_plain = 0
    for step in range(8):
        batch = source.batch(step)
        inputs = batch.examples.inputs
        assert not batch.is_paired
        assert inputs.is_speaker.any(-1).all()
        # Of the role, a newline is left.
        assert (((inputs.text_ids >= 0) & (inputs.text_ids < 256)).sum(-1) == 1).all()
        assert len(batch.reference_mel) == len(inputs.is_frame) == len(batch.spans)
        assert not any(batch.spans)
        assert inputs.is_frame.numel() <= 1.25 * TEXTLESS.max_positions
        for codes, is_frame in zip(inputs.with_first_codebook(), inputs.is_frame, strict=True):
            said = codes[is_frame][:, :2].unique_consecutive(dim=0)
            numbers = (said[:, 0] + TEXTLESS.size.codebook_size * said[:, 1]).tolist()
            wanted = torch.cat([coded.codes(number) for number in numbers])
            assert torch.equal(codes[is_frame], wanted)
            assert len({coded.corpus.entries[number].speaker for number in numbers}) == 1
            assert len(numbers) <= 2
            num_continued, num_plain = num_continued + (len(numbers) == 2), num_plain + (len(numbers) == 1)
    assert min(num_continued, num_plain) > 0


def test_a_step_has_the_same_batch_again(coded: frame_codes.CodedCorpus):
    one, other = (TextlessSource(coded, TEXTLESS, TEXTLESS.size.config()).batch(5) for _ in range(2))
    assert torch.equal(one.examples.labels_BT, other.examples.labels_BT)
    assert torch.equal(one.reference_mel, other.reference_mel)


def test_a_stopped_run_ends_as_one_that_never_stopped(foreign: Path, tokenizer: Path, tmp_path: Path):
    whole, stopped = (open_training(foreign, tokenizer, tmp_path / name, TEXTLESS) for name in ("whole", "stopped"))
    assert whole.run(save_every_seconds=1e9, should_stop=lambda: False)
    assert not stopped.run(save_every_seconds=1e9, should_stop=lambda: stopped.step >= 6)
    resumed = open_training(foreign, tokenizer, tmp_path / "stopped", TEXTLESS)
    assert resumed.run(save_every_seconds=1e9, should_stop=lambda: False)
    expected, found = (load_file(tmp_path / name / "state" / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    lines = [line for line in read_log(tmp_path / "whole") if "talker" in line]
    assert lines[-1]["code_predictor"] < lines[0]["code_predictor"]


def test_a_run_without_it_reads_no_other_languages(foreign: Path, tokenizer: Path, tmp_path: Path):
    open_training(foreign, tokenizer, tmp_path, JOB)
    assert not list(tmp_path.glob(f"codes/{OTHER_LANGUAGES}/*"))


def test_a_corpus_without_them_says_what_to_install(tokenizer: Path, tmp_path: Path):
    for part in PARTS:
        write_part(tmp_path / "corpus" / part, 2)
    with pytest.raises(PretrainError, match="no voices of other languages"):
        TalkerTraining(
            TEXTLESS, tmp_path / "corpus", tokenizer, tmp_path, device=torch.device("cpu"), report=lambda line: None
        )
