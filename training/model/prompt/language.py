"""Which languages a checkpoint speaks: here, where no network is imported, so that others are refused early."""

from __future__ import annotations

from training.model.config import ModelConfig
from training.model.errors import PromptError

AUTO_LANGUAGE = "auto"


def check_language(config: ModelConfig, language: str) -> None:
    """Refuse a language that the checkpoint does not have. Raises PromptError."""
    name = language.lower()
    if name != AUTO_LANGUAGE and name not in config.languages:
        known = ", ".join((AUTO_LANGUAGE, *config.languages))
        raise PromptError(f"This model does not speak {language!r}. Choose one of: {known}.")
