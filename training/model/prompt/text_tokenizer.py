"""Text to token ids, in the turns the talker was trained on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from training.model.errors import CheckpointError, PromptError

ROLE_TURN = "<|im_start|>assistant\n"
TURN_END = "<|im_end|>\n"
NUM_ROLE_TOKENS = 3
"""`<|im_start|>`, assistant and the newline: the prompt layouts count on them being one token each."""

TOKENIZER_FILES = ("vocab.json", "merges.txt", "tokenizer_config.json")


class TextTokenizer:
    """Byte-level BPE of a checkpoint folder.

    Text of a user is never read as control tokens: `<|im_end|>` in a text is encoded letter by letter.
    """

    def __init__(self, tokenizer: Any) -> None:  # Any: transformers' tokenizer classes are untyped
        self._tokenizer = tokenizer
        self.role_ids: list[int] = self._encode(ROLE_TURN)
        self.turn_end_ids: list[int] = self._encode(TURN_END)

    @classmethod
    def from_folder(cls, folder: Path) -> TextTokenizer:
        """Load `vocab.json`, `merges.txt` and `tokenizer_config.json`.

        Raises:
            CheckpointError: a file is missing or unreadable, or the vocabulary splits "assistant".
        """
        # Takes a second, and of those who import this many load no model.
        from transformers import Qwen2Tokenizer  # noqa: PLC0415 - see above

        missing = [name for name in TOKENIZER_FILES if not (folder / name).is_file()]
        if missing and not (folder / "tokenizer.json").is_file():
            raise CheckpointError(f"{folder} has no text tokenizer: {', '.join(missing)} missing.")
        try:
            tokenizer = Qwen2Tokenizer.from_pretrained(str(folder), local_files_only=True)
            # The limit of another program's pipelines; ours is the number of positions.
            tokenizer.model_max_length = sys.maxsize
            found = cls(tokenizer)
        except Exception as error:  # the tokenizers library raises plain Exception for bad files
            raise CheckpointError(f"The text tokenizer in {folder} cannot be read: {error}") from error
        if len(found.role_ids) != NUM_ROLE_TOKENS:
            raise CheckpointError(
                f"The text tokenizer in {folder} splits {ROLE_TURN!r} into {len(found.role_ids)} tokens instead of "
                f"{NUM_ROLE_TOKENS}: it is from another model. Get the model again."
            )
        return found

    def __len__(self) -> int:
        """Size of the vocabulary, special tokens included."""
        return len(self._tokenizer)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text to speak or of a reference's transcript, without the surrounding turn.

        Raises:
            PromptError: the text holds broken characters, as from a file or terminal that is not UTF-8.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError("The text holds broken characters. Save or type it as UTF-8.") from error
        ids: list[int] = self._tokenizer(text.strip(), add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return ids

    def encode_instruction(self, instruction: str) -> list[int]:
        """Ids of a whole instruction turn; empty for an empty instruction."""
        if not instruction.strip():
            return []
        return self._encode("<|im_start|>user\n") + self.encode_text(instruction) + self.turn_end_ids

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids
