"""Text to token ids, in the turns the talker was trained on."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from training.model.errors import CheckpointError, PromptError
from training.model.prompt.qwen_bpe import CONFIG_FILE, MERGES_FILE, VOCABULARY_FILE, read_published

ROLE_TURN = "<|im_start|>assistant\n"
USER_TURN = "<|im_start|>user\n"
TURN_END = "<|im_end|>\n"
NUM_ROLE_TOKENS = 3
"""`<|im_start|>`, assistant and the newline: the prompt layouts count on them being one token each."""

TOKENIZER_FILES = (VOCABULARY_FILE, MERGES_FILE, CONFIG_FILE)


class TextTokenizer:
    """Byte-level BPE of a checkpoint folder.

    Text of a user is never read as control tokens: `<|im_end|>` in a text is encoded letter by letter.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.role_ids: list[int] = self._encode(ROLE_TURN)
        self.turn_end_ids: list[int] = self._encode(TURN_END)
        self._user_turn_ids: list[int] = self._encode(USER_TURN)
        # From here on everything that is encoded is a user's.
        tokenizer.encode_special_tokens = True

    @classmethod
    def from_folder(cls, folder: Path) -> TextTokenizer:
        """Load `vocab.json`, `merges.txt` and `tokenizer_config.json`.

        Raises:
            CheckpointError: a file is missing or unreadable, or the vocabulary splits "assistant".
        """
        missing = [name for name in TOKENIZER_FILES if not (folder / name).is_file()]
        if missing and not (folder / "tokenizer.json").is_file():
            raise CheckpointError(f"{folder} has no text tokenizer: {', '.join(missing)} missing.")
        try:
            published = read_published(folder)
            found = cls(_read_with_transformers(folder) if published is None else published)
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
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text to speak or of a reference's transcript, without the surrounding turn.

        Raises:
            PromptError: the text holds broken characters, as from a file or terminal that is not UTF-8.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError("The text holds broken characters. Save or type it as UTF-8.") from error
        return self._encode(text.strip())

    def encode_instruction(self, instruction: str) -> list[int]:
        """Ids of a whole instruction turn; empty for an empty instruction."""
        if not instruction.strip():
            return []
        return self._user_turn_ids + self.encode_text(instruction) + self.turn_end_ids

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def _read_with_transformers(folder: Path) -> Tokenizer:
    """The same for folders that another program has written. Takes a second to import."""
    from transformers import Qwen2Tokenizer  # noqa: PLC0415 - see above

    tokenizer: Tokenizer = Qwen2Tokenizer.from_pretrained(str(folder), local_files_only=True).backend_tokenizer
    # The limits of another program's pipelines; ours is the number of positions.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
