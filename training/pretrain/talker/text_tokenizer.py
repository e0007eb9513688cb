"""The text tokenizer of the embedded checkpoint, in the files of the public one: one token per byte, no merges.

With merges, a network this small would see most tokens too rarely to learn their pronunciation. With single letters it
sees each of them thousands of times an hour, and a sentence is still only some sixty tokens long.

The layout of a turn needs "assistant" as one token. Merges that build it up would also join "as", "ass" and "ist" in
other words, so it is a special token instead: one token in a turn's head, and single letters in the user's text.
"""

from __future__ import annotations

import json
from pathlib import Path

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "assistant",
)
NUM_BYTES = 256
VOCAB_SIZE = NUM_BYTES + len(SPECIAL_TOKENS)
_MAX_TEXT_TOKENS = 131_072  # as in the public tokenizer; nothing here depends on it


def special_token_ids() -> dict[str, int]:
    """Id of each special token; the id of a byte is the byte itself."""
    return {token: NUM_BYTES + number for number, token in enumerate(SPECIAL_TOKENS)}


def write_text_tokenizer(folder: Path) -> None:
    """Write `vocab.json`, `merges.txt` and `tokenizer_config.json` into a checkpoint folder."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {letter: byte for byte, letter in enumerate(_byte_letters())}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(_config(), indent=1) + "\n", encoding="utf-8")


def _byte_letters() -> list[str]:
    """Byte-level BPE's visible letter for each byte: itself if printable, else the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    substitutes = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(substitutes)) for byte in range(NUM_BYTES)]


def _config() -> dict[str, object]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
        "added_tokens_decoder": {
            str(token_id): {"content": token, **flags} for token, token_id in special_token_ids().items()
        },
        "model_max_length": _MAX_TEXT_TOKENS,
        "errors": "replace",
        "split_special_tokens": False,
        "clean_up_tokenization_spaces": False,
    }
