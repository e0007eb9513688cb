"""Datasets as runs read them."""

from __future__ import annotations

from dataclasses import fields, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.training.finetuning import make_rows, write_dataset
from training.data.code_rows import ROWS_FILE, SCHEMA, TrainingDataError, read_code_rows
from training.data.example import build_example
from training.data.training_set import ClipUse, read_training_set
from training.model.generation.take_request import TakeRequest, VoicePrompt, build_prompt

COUNTS = (9, 16, 23, 30)


def read(folder, model, **options):
    options = {"max_tokens": 1024, **options}
    return read_training_set(folder, model.config, model.text_tokenizer, **options)[1]


def test_held_out_clips_are_not_trained_on(tmp_path, golden_model):
    found = read(write_dataset(tmp_path / "d", make_rows(COUNTS, num_held_out=2)), golden_model)
    assert [clip.clip_id for clip in found.clips] == ["clip-000", "clip-001"]
    assert found.num_frames == 25


def test_rows_from_elsewhere_are_the_same_in_any_order(tmp_path, golden_model):
    rows = make_rows(COUNTS)
    folder = write_dataset(tmp_path / "d", rows)
    from_file = read(folder, golden_model)
    from_iterator = read(folder, golden_model, rows=reversed(rows))
    assert [clip.clip_id for clip in from_iterator.clips] == [clip.clip_id for clip in from_file.clips]
    assert torch.equal(from_iterator.clips[2].codes_FQ, from_file.clips[2].codes_FQ)
    assert torch.equal(from_iterator.speaker_D, from_file.speaker_D)


@pytest.mark.parametrize("use", [ClipUse(clip=1), ClipUse(clip=1, reference=3)], ids=["alone", "in context"])
@pytest.mark.parametrize("language", ["auto", "german"])
def test_lengths_are_known_before_examples_are_built(tmp_path, golden_model, use, language):
    rows = [replace(row, language=language) for row in make_rows(COUNTS)]
    found = read(write_dataset(tmp_path / "d", rows), golden_model)
    example = found.example(use)
    assert found.num_tokens(use) == len(example.inputs)
    assert int(example.is_answer_T.sum()) == found.clips[1].num_frames
    assert torch.equal(example.inputs.with_first_codebook()[example.is_answer_T], found.clips[1].codes_FQ)


@pytest.mark.parametrize("reference", [None, 2], ids=["alone", "in context"])
def test_a_style_is_the_instruction_that_generation_would_give(tmp_path, golden_model, reference):
    """For a model that follows instructions; for another one no token of it stands in any example."""
    config = replace(golden_model.config, tts_model_type="custom_voice", tts_model_size="1b7")
    instructed = replace(golden_model, config=config)
    rows = [replace(row, style="very calm") for row in make_rows(COUNTS)]
    folder = write_dataset(tmp_path / "d", rows)
    found, use = read(folder, instructed), ClipUse(clip=1, reference=reference)
    example, codes_FQ = found.example(use), found.clips[1].codes_FQ
    voice = VoicePrompt(speaker=found.speaker_D)
    if reference is not None:
        clip = found.clips[reference]
        voice = replace(voice, reference_codes=clip.codes_FQ, reference_text=rows[reference].text)
    request = TakeRequest(text=rows[1].text, voice=voice, instruction="very calm")
    generated = build_example(config, build_prompt(instructed, request), codes_FQ, found.speaker_D)
    for spec in fields(example.inputs):
        assert torch.equal(getattr(example.inputs, spec.name), getattr(generated.inputs, spec.name)), spec.name
    assert torch.equal(example.labels_T, generated.labels_T)
    assert found.num_tokens(use) == len(example.inputs)
    cloning = read(folder, golden_model)
    num_instruction = len(golden_model.text_tokenizer.encode_instruction("very calm"))
    assert cloning.num_tokens(use) == found.num_tokens(use) - num_instruction
    assert cloning.has_styles


@pytest.mark.parametrize(
    ("kind", "size", "follows"),
    [
        ("base", "1b7", False),
        ("custom_voice", "1b7", True),
        ("custom_voice", "0b6", False),
        ("voice_design", "1b7", True),
    ],
)
def test_which_public_checkpoints_follow_instructions(golden_model, kind, size, follows):
    config = replace(golden_model.config, tts_model_type=kind, tts_model_size=size)
    assert config.follows_instructions is follows


def test_the_embedding_is_the_references_or_the_mean(tmp_path, golden_model):
    rows = make_rows(COUNTS, num_held_out=1)
    folder = write_dataset(tmp_path / "d", rows, reference_clip_id="clip-003")
    embeddings = torch.tensor([row.speaker_embedding for row in rows])
    assert torch.equal(read(folder, golden_model).speaker_D, embeddings[3])
    assert torch.allclose(read(folder, golden_model, speaker="mean").speaker_D, embeddings[:3].mean(0))


def test_clips_beyond_the_context_are_left_out_and_counted(tmp_path, golden_model):
    found = read(write_dataset(tmp_path / "d", make_rows((9, 200, 16))), golden_model, max_tokens=100)
    assert [clip.clip_id for clip in found.clips] == ["clip-000", "clip-002"]
    assert found.num_too_long == 1


def test_only_clips_beyond_the_context_are_refused(tmp_path, golden_model):
    with pytest.raises(TrainingDataError, match=r"None of the 2 clips .* fits into 50 tokens"):
        read(write_dataset(tmp_path / "d", make_rows((100, 200))), golden_model, max_tokens=50)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no clips to train on"),
        (make_rows((9, 12), num_held_out=2), r"no clips to train on \(2 are held out\)"),
        ([replace(make_rows((9,))[0], codes=[64] * 16)], "codes beyond the model's 64"),
        ([replace(make_rows((9,))[0], codes=[1] * 17)], "not a whole number of frames"),
        ([replace(make_rows((9,))[0], text="  ")], "has no transcript"),
        ([replace(make_rows((9,))[0], language="klingon")], "does not speak 'klingon'"),
        ([replace(make_rows((9,))[0], speaker_embedding=[0.5] * 32)], "width 32, the model's is 48"),
        ([replace(make_rows((9,))[0], speaker_embedding=[float("nan")] * 48)], "not finite"),
        ([replace(make_rows((9,))[0], clip_id="other")], "reference clip clip-000 .* not among its rows"),
    ],
    ids=["none", "all held out", "codes", "half a frame", "no text", "language", "width", "nan", "no reference"],
)
def test_unusable_data_is_refused(tmp_path, golden_model, rows, message):
    folder = write_dataset(tmp_path / "d", rows)
    with pytest.raises(TrainingDataError, match=message):
        read(folder, golden_model)


def test_another_models_codebooks_are_refused(tmp_path, golden_model):
    folder = write_dataset(tmp_path / "d", make_rows(COUNTS), num_codebooks=8)
    with pytest.raises(TrainingDataError, match="8 codebooks per frame and the model 16"):
        read(folder, golden_model)


def test_rows_without_a_column_are_refused(tmp_path):
    table = pa.table({name: [] for name in SCHEMA.names if name != "text"})
    pq.write_table(table, tmp_path / ROWS_FILE)
    with pytest.raises(TrainingDataError, match=f"{ROWS_FILE} has no column text"):
        read_code_rows(tmp_path / ROWS_FILE)
