"""Errors of pretraining."""

from training.model.errors import EncoreError


class PretrainError(EncoreError):
    """A stage of pretraining cannot run."""


class CorpusError(PretrainError):
    """The corpus cannot be made or read: an engine or a text source is missing, or the folder holds another corpus."""
