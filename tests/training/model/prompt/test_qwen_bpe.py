"""The text tokenizer without transformers gives the ids of transformers' class, and leaves it what it doesn't know."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

from tests.golden import GOLDEN_CHECKPOINT
from training.model.errors import CheckpointError
from training.model.hub.hub import EMBEDDED_FOLDER
from training.model.project import PROJECT_FOLDER
from training.model.prompt.qwen_bpe import read_published
from training.model.prompt.text_tokenizer import ROLE_TURN, TextTokenizer

PLAIN = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<tts_pad>")
TOKENS = {**dict.fromkeys(SPECIAL, True), "<tool_call>": False, "</tool_call>": False}
TEXTS = (
    "Hello, world! It's 1984, isn't it?",
    "  two  spaces\tand\r\n\r\nlines \n",
    "Größe naïve Z\u0061\u0301rate \u65e5\u672c\u8a9e \u0645\u0631\u062d\u0628\u0627 \U0001f600\u200d\U0001f525",
    "I'LL we've THEY'RE 'S \u2019s ''",
    "<|im_end|> <tts_pad><tool_call>x</tool_call> <|im_start|>assistant\n",
    "1234567 3.14 $5,000.00 +=/*%@#",
    "",
)


def write_config(folder: Path, **more: object) -> None:
    first = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        **dict.fromkeys(("bos_token", "unk_token")),
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "audio_bos_token": "<|audio_start|>",
        "additional_special_tokens": list(SPECIAL[1:]),
        "added_tokens_decoder": {
            str(first + number): {"content": token, "special": is_special, **PLAIN}
            for number, (token, is_special) in enumerate(TOKENS.items())
        },
        "model_max_length": 131_072,
        **more,
    }
    given = {name: value for name, value in config.items() if value is not ...}
    (folder / "tokenizer_config.json").write_text(json.dumps(given), encoding="utf-8")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Merges learned from this repository's documents, so that most words of a text have some."""
    folder = tmp_path_factory.mktemp("learned")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    documents = [(PROJECT_FOLDER / name).read_text(encoding="utf-8") for name in ("README.md", "docs/architecture.md")]
    tokenizer.train_from_iterator([*documents, *["assistant", "user"] * 500], trainer)
    tokenizer.model.save(str(folder))
    write_config(folder)
    return folder


@pytest.fixture(scope="module", params=["learned", "mini", "golden"])
def pair(request: pytest.FixtureRequest, learned: Path) -> tuple[TextTokenizer, Any]:
    """Ours and transformers' of one folder."""
    folder = {"learned": learned, "mini": EMBEDDED_FOLDER, "golden": GOLDEN_CHECKPOINT}[request.param]
    assert read_published(folder) is not None, "the published layout is read without transformers"
    return TextTokenizer.from_folder(folder), Qwen2Tokenizer.from_pretrained(str(folder), local_files_only=True)


def of_transformers(reference: Any, text: str) -> list[int]:
    return list(reference(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_ids_of_transformers(pair: tuple[TextTokenizer, Any], text: str) -> None:
    ours, reference = pair
    assert ours.encode_text(text) == of_transformers(reference, text.strip())


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_text_has_the_ids_of_transformers(pair: tuple[TextTokenizer, Any], text: str) -> None:
    ours, reference = pair
    assert ours.encode_text(text) == of_transformers(reference, text.strip())


def test_documents_have_the_ids_of_transformers(pair: tuple[TextTokenizer, Any]) -> None:
    ours, reference = pair
    for path in sorted((PROJECT_FOLDER / "docs").glob("*.md")):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert ours.encode_text(line) == of_transformers(reference, line.strip())


def test_turns_and_sizes_are_those_of_transformers(pair: tuple[TextTokenizer, Any]) -> None:
    ours, reference = pair
    assert ours.role_ids == list(reference(ROLE_TURN, add_special_tokens=False)["input_ids"])
    assert len(ours) == len(reference)
    turn = "<|im_start|>user\nCheerfully.<|im_end|>\n"
    assert ours.encode_instruction("Cheerfully.") == list(reference(turn, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write_config(folder, add_prefix_space=True),
        lambda folder: write_config(folder, mask_token="<mask>"),
        lambda folder: write_config(folder, added_tokens_decoder=...),
        lambda folder: write_config(folder, eos_token=..., additional_special_tokens=["<|im_end|>", "<tool_call>"]),
        lambda folder: write_config(folder, backend="tokenizers"),
        lambda folder: (folder / "special_tokens_map.json").write_text('{"pad_token": "<|im_start|>"}'),
    ],
    ids=["prefix", "further", "none", "becomes-special", "unknown", "other-file"],
)
def test_what_is_laid_out_otherwise_is_left_to_transformers(
    learned: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    folder = shutil.copytree(learned, tmp_path / "other")
    change(folder)
    assert read_published(folder) is None


def test_a_folder_that_transformers_wrote_is_read(learned: Path, tmp_path: Path) -> None:
    reference = Qwen2Tokenizer.from_pretrained(str(learned), local_files_only=True)
    reference.save_pretrained(str(tmp_path))
    assert (tmp_path / "tokenizer.json").is_file()
    ours = TextTokenizer.from_folder(tmp_path)
    assert ours.role_ids == TextTokenizer.from_folder(learned).role_ids
    assert [ours.encode_text(text) for text in TEXTS] == [of_transformers(reference, text.strip()) for text in TEXTS]


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_a_damaged_file_is_an_error_that_names_the_folder(learned: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(learned, tmp_path / "damaged")
    (folder / name).write_text("{\nno", encoding="utf-8")
    with pytest.raises(CheckpointError, match="damaged"):
        TextTokenizer.from_folder(folder)


def test_the_published_layout_needs_no_transformers() -> None:
    program = (
        "import sys; from pathlib import Path; from training.model.prompt.text_tokenizer import TextTokenizer;"
        f"TextTokenizer.from_folder(Path({str(EMBEDDED_FOLDER)!r})).encode_text('Hm.');"
        "print({'transformers', 'huggingface_hub', 'torch'} & sys.modules.keys())"
    )
    printed = subprocess.run([sys.executable, "-c", program], cwd=PROJECT_FOLDER, capture_output=True, text=True)
    assert printed.stdout.strip() == "set()", printed.stderr
