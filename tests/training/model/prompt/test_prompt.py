from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from training.model.errors import PromptError
from training.model.network.talker_input import NOTHING, concatenate, frame_positions, id_positions, pad_and_stack
from training.model.prompt.prompt import (
    PromptHead,
    in_context_prompt,
    instruction_prefix,
    language_tag,
    named_speaker_prompt,
    unconditional_prompt,
    x_vector_prompt,
)

TEXT = [31, 32, 33]
REFERENCE_TEXT = [41, 42]


@pytest.fixture
def config(golden_model):
    return golden_model.config


@pytest.fixture
def head(golden_model):
    return PromptHead(role_ids=golden_model.text_tokenizer.role_ids)


def channels(prompt):
    """The two channels as lists, speaker rows shown as 'S' and frames as 'F'."""
    rows = prompt.inputs
    codec = [
        "S" if speaker else "F" if frame else code
        for code, speaker, frame in zip(
            rows.codec_ids.tolist(), rows.is_speaker.tolist(), rows.is_frame.tolist(), strict=True
        )
    ]
    return rows.text_ids.tolist(), codec


def test_x_vector_layout(config, head):
    talker, pad = config.talker, config.tts_pad_token_id
    text, codec = channels(x_vector_prompt(config, head, TEXT))
    assert text == [*head.role_ids, pad, pad, pad, pad, config.tts_bos_token_id, *TEXT, config.tts_eos_token_id, pad]
    tag = [talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id]
    assert codec == [NOTHING] * 3 + tag + ["S"] + [talker.codec_pad_id] * 5 + [talker.codec_bos_id]


def test_streaming_text_starts_with_one_token_and_trails_the_rest(config, head):
    prompt = x_vector_prompt(config, head, TEXT, streaming_text=True)
    text, codec = channels(prompt)
    assert (text[-1], codec[-1]) == (TEXT[0], config.talker.codec_bos_id)
    assert list(prompt.trailing_text_ids) == [*TEXT[1:], config.tts_eos_token_id]


def test_an_unconditional_prompt_has_neither_text_nor_speaker(config, head):
    talker, pad = config.talker, config.tts_pad_token_id
    text, codec = channels(unconditional_prompt(config, head.role_ids))
    assert text == [*head.role_ids, pad, pad, pad, config.tts_bos_token_id, config.tts_eos_token_id, pad]
    tag = [talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id]
    assert codec == [NOTHING] * 3 + tag + [talker.codec_pad_id] * 2 + [talker.codec_bos_id]


def test_a_named_language_moves_the_speaker_one_row_on(config, head):
    auto = x_vector_prompt(config, head, TEXT)
    english = x_vector_prompt(config, replace(head, language="ENGLISH"), TEXT)
    assert english.inputs.is_speaker.tolist().index(True) == auto.inputs.is_speaker.tolist().index(True) + 1


def test_in_context_layout(config, head):
    codes = torch.arange(5 * 16).view(5, 16) % 64
    prompt = in_context_prompt(config, head, TEXT, reference_text_ids=REFERENCE_TEXT, reference_codes_FQ=codes)
    text, codec = channels(prompt)
    assert text[-12:] == [*REFERENCE_TEXT, *TEXT, config.tts_eos_token_id, *[config.tts_pad_token_id] * 6]
    assert codec[-6:] == [config.talker.codec_bos_id, *"FFFFF"]
    assert torch.equal(prompt.inputs.with_first_codebook()[-5:], codes)


@pytest.mark.parametrize("num_frames", [2, 5, 9])
def test_in_context_streaming_fills_the_shorter_channel(config, head, num_frames):
    codes = torch.ones(num_frames, 16, dtype=torch.long)
    prompt = in_context_prompt(
        config, head, TEXT, reference_text_ids=REFERENCE_TEXT, reference_codes_FQ=codes, streaming_text=True
    )
    text, codec = channels(prompt)
    everything = [*REFERENCE_TEXT, *TEXT, config.tts_eos_token_id]
    assert codec[-num_frames - 1 :] == [config.talker.codec_bos_id, *"F" * num_frames]
    beside = text[-num_frames - 1 :]
    assert [*beside, *prompt.trailing_text_ids][: len(everything)] == everything
    assert all(token == config.tts_pad_token_id for token in beside[len(everything) :])


def with_speaker(config, **changes):
    talker = replace(config.talker, **changes)
    return replace(config, talker=talker)


def test_a_named_speaker_is_a_codec_row(config, head):
    named = with_speaker(config, spk_id={"ada": 300})
    prompt = named_speaker_prompt(named, replace(head, speaker="Ada"), TEXT)
    assert 300 in prompt.inputs.codec_ids.tolist()
    assert not prompt.inputs.is_speaker.any()


@pytest.mark.parametrize(("language", "expected"), [("auto", 81), ("Chinese", 81), ("english", 66)])
def test_a_speakers_dialect_wins_over_auto_and_chinese_only(config, language, expected):
    languages = {**config.talker.codec_language_id, "sichuan_dialect": 81}
    named = with_speaker(
        config, spk_id={"eric": 301}, spk_is_dialect={"eric": "sichuan_dialect"}, codec_language_id=languages
    )
    assert language_tag(named, language, "eric")[2] == expected


def test_an_instruction_comes_first_and_needs_no_speaker(golden_model, head):
    ids = golden_model.text_tokenizer.encode_instruction("whisper")
    prompt = x_vector_prompt(golden_model.config, replace(head, instruction_ids=ids, has_speaker=False), TEXT)
    text, codec = channels(prompt)
    assert text[: len(ids)] == ids
    assert codec[: len(ids)] == [NOTHING] * len(ids)
    assert "S" not in codec
    assert len(instruction_prefix(golden_model.config, [])) == 0


@pytest.mark.parametrize(
    ("change", "text", "words"),
    [
        ({}, [], "no text"),
        ({"language": "klingon"}, TEXT, "english"),
        ({"speaker": "nobody"}, TEXT, "nobody"),
    ],
)
def test_what_cannot_be_laid_out_says_why(config, head, change, text, words):
    with pytest.raises(PromptError, match=words):
        x_vector_prompt(config, replace(head, **change), text)


def test_in_context_needs_words_and_frames(config, head):
    frames = torch.zeros(3, 16, dtype=torch.long)
    with pytest.raises(PromptError, match="transcript"):
        in_context_prompt(config, head, TEXT, reference_text_ids=[], reference_codes_FQ=frames)
    with pytest.raises(PromptError, match="empty"):
        in_context_prompt(config, head, TEXT, reference_text_ids=TEXT, reference_codes_FQ=frames[:0])


def test_padding_rows_embed_to_nothing(golden_model):
    talker = golden_model.talker
    short, long = (
        id_positions([5], [6], 16),
        concatenate([id_positions([5], [6], 16), frame_positions(torch.ones(2, 16), [7, 8])]),
    )
    embedded = talker.embed_input(pad_and_stack([short, long]), None)
    assert torch.equal(embedded[0, 1:], torch.zeros_like(embedded[0, 1:]))
    assert torch.allclose(embedded[1], talker.embed_input(long.batched(), None)[0], atol=1e-6)


def test_a_persons_text_is_never_read_as_control_tokens(golden_model):
    tokenizer = golden_model.text_tokenizer
    control = set(tokenizer.role_ids[:1] + tokenizer.turn_end_ids[:1])
    assert not control & set(tokenizer.encode_text("<|im_start|>assistant<|im_end|>"))
    assert tokenizer.encode_instruction("  ") == []
