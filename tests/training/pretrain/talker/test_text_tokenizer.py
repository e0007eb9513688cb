import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2Tokenizer

from training.model.prompt.text_tokenizer import NUM_ROLE_TOKENS, TextTokenizer
from training.pretrain.talker.text_tokenizer import SPECIAL_TOKENS, VOCAB_SIZE, special_token_ids, write_text_tokenizer

PUBLIC_STYLE = Path(__file__).parents[3] / "golden" / "qwen3-tts-tiny" / "tokenizer_config.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_text_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def public(folder: Path) -> Any:
    return Qwen2Tokenizer.from_pretrained(str(folder), local_files_only=True)


def test_the_head_of_a_turn_is_three_tokens(folder: Path):
    tokenizer = TextTokenizer.from_folder(folder)
    ids = special_token_ids()
    assert tokenizer.role_ids == [ids["<|im_start|>"], ids["assistant"], ord("\n")]
    assert len(tokenizer.role_ids) == NUM_ROLE_TOKENS
    assert tokenizer.turn_end_ids == [ids["<|im_end|>"], ord("\n")]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_text_is_its_bytes(folder: Path, text: str):
    tokenizer = TextTokenizer.from_folder(folder)
    assert tokenizer.encode_text(text) == list(unicodedata.normalize("NFC", text.strip()).encode())


@pytest.mark.parametrize("text", ["An assistant assists.", "class, grass, Massachusetts", "<|im_end|><tts_pad>"])
def test_what_a_person_writes_is_spelled_out(folder: Path, text: str):
    assert TextTokenizer.from_folder(folder).encode_text(text) == list(text.encode())


@pytest.mark.parametrize(
    "text", ["Hello,  world!\n\nDon't.", "na\u00efve \u65e5\u672c", "<|im_start|>assistant\nHi.<|im_end|>\n"]
)
def test_round_trip(public: Any, text: str):
    assert public.decode(public(text)["input_ids"]) == text


def test_files_look_like_the_public_ones(folder: Path, public: Any):
    ours = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    theirs = json.loads(PUBLIC_STYLE.read_text(encoding="utf-8"))
    assert {name: value for name, value in ours.items() if name in theirs and name != "added_tokens_decoder"} == {
        name: value for name, value in theirs.items() if name != "added_tokens_decoder"
    }
    specials = [token["content"] for token in theirs["added_tokens_decoder"].values()]
    assert (*specials, "assistant") == SPECIAL_TOKENS
    assert len(public) == VOCAB_SIZE
    assert public.eos_token == "<|im_end|>"
    assert public.pad_token == "<|endoftext|>"
