"""The byte-level BPE of Qwen2 from a checkpoint's files, without transformers, whose class takes a second to import.

Only what is laid out as the published checkpoints are is read here; transformers reads everything else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
CONFIG_FILE = "tokenizer_config.json"

# As in transformers' `Qwen2Tokenizer`; a test compares the two text by text.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Where one of these lies beside the vocabulary, transformers takes from it what is not in the published files.
_OTHER_FILES = ("tokenizer.json", "added_tokens.json", "special_tokens_map.json")
# The class has these defaults, which a configuration says away with null.
_DEFAULT_TOKENS = dict.fromkeys(("eos_token", "pad_token", "unk_token"), "<|endoftext|>")
_LISTED_TOKENS = ("additional_special_tokens", "extra_special_tokens")
_WITHOUT_EFFECT = frozenset(
    {
        *("tokenizer_class", "processor_class", "model_max_length", "errors", "clean_up_tokenization_spaces"),
        *("split_special_tokens", "chat_template"),
    }
)
"""On the ids of a text."""
_CHECKED = frozenset({"added_tokens_decoder", "add_prefix_space", "add_bos_token", "add_eos_token", *_LISTED_TOKENS})
_PLAIN = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}


def read_published(folder: Path) -> Tokenizer | None:
    """Build the tokenizer of a checkpoint folder; None where it is not laid out as published ones are.

    Raises:
        OSError, ValueError: a file is missing, or is no JSON.
        Exception: the tokenizers library cannot read the vocabulary or the merges, and has no narrower class for that.
    """
    if any((folder / name).exists() for name in _OTHER_FILES):
        return None
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    added = _added_tokens(config) if isinstance(config, dict) else None
    if added is None:
        return None
    tokenizer = Tokenizer(BPE.from_file(str(folder / VOCABULARY_FILE), str(folder / MERGES_FILE)))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_tokens([token for _, token in added])
    is_numbered_so = all(tokenizer.token_to_id(token.content) == number for number, token in added)
    return tokenizer if is_numbered_so else None


def _added_tokens(config: dict[str, Any]) -> list[tuple[int, AddedToken]] | None:  # Any: JSON
    """Tokens beside the vocabulary with their ids, in the order of these; None where they are described otherwise."""
    decoder = config.get("added_tokens_decoder")
    unknown = [name for name in config.keys() - _WITHOUT_EFFECT - _CHECKED if not name.endswith("_token")]
    adds_more = any(config.get(name) for name in ("add_prefix_space", "add_bos_token", "add_eos_token"))
    if not isinstance(decoder, dict) or unknown or adds_more:
        return None
    added = []
    for number, token in decoder.items():
        is_plain = isinstance(token, dict) and {name: token.get(name) for name in _PLAIN} == _PLAIN
        if not (number.isdecimal() and is_plain and token.keys() == {"content", "special", *_PLAIN}):
            return None
        added.append((int(number), AddedToken(**token)))
    # What is named without being described as special would become special, or be added behind the others.
    special = {token.content for _, token in added if token.special}
    if not all(isinstance(token, str) and token in special for token in _named_tokens(config)):
        return None
    return sorted(added, key=lambda one: one[0])


def _named_tokens(config: dict[str, Any]) -> list[object]:  # Any: JSON
    """What the configuration names as a token, such as the one that ends a turn."""
    named = {**_DEFAULT_TOKENS, **{name: value for name, value in config.items() if name.endswith("_token")}}
    tokens: list[object] = [token for name, token in named.items() if token is not None and name not in _CHECKED]
    for name in _LISTED_TOKENS:
        listed = config.get(name) or []
        tokens += listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else [listed]
    return tokens
