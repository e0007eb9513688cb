"""Whether a model can be fine-tuned on a dataset: its kind, and the codes that it understands."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch

from backend.runs.errors import RunInvalid
from training.data.code_rows import DatasetCard
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, load_weights, read_config, read_speech_tokenizer_config
from training.model.codec.speech_tokenizer import SpeechTokenizer, tokenizer_fingerprint


def check_model(folder: Path, card: DatasetCard, model: str) -> None:
    """Refuse a model that is not a base model, or that uses other codes than the dataset. Raises RunInvalid."""
    config = read_config(folder)
    if config.tts_model_type != "base":
        raise RunInvalid(
            f"{model} is a {config.tts_model_type} checkpoint, and only base ones can be fine-tuned. "
            "Choose a base checkpoint, or the base variant of a fine-tuned voice."
        )
    if fingerprint_of(folder) != card.tokenizer_fingerprint:
        if card.model == model:
            raise RunInvalid(
                f"The dataset {card.name} was made with an earlier version of {model}, which has learnt other codes "
                "since. Build the dataset again from the same recordings."
            )
        raise RunInvalid(
            f"The dataset {card.name} was made with {card.model}, whose codes {model} does not understand. "
            f"Build the dataset again with {model}, or fine-tune {card.model}."
        )


def fingerprint_of(folder: Path) -> str:
    """Which codes a checkpoint folder uses."""
    files = find_weights(folder / SPEECH_TOKENIZER_FOLDER)
    return _fingerprint(folder, tuple((path, path.stat().st_mtime_ns) for path in files))


@lru_cache(maxsize=4)  # reads all of the tokenizer, and the page plans again with every change of a field
def _fingerprint(folder: Path, files: tuple[tuple[Path, int], ...]) -> str:
    with torch.device("meta"):
        tokenizer = SpeechTokenizer(read_speech_tokenizer_config(folder))
    load_weights(tokenizer, [path for path, _ in files], "", dtype=torch.float32, device=torch.device("cpu"))
    return tokenizer_fingerprint(tokenizer)
