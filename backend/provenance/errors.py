"""What can go wrong with statements, signatures and recordings that carry one."""

from __future__ import annotations

from backend.errors import EncoreError, RecordingError


class SigningError(EncoreError):
    """Files cannot be signed: no usable certificate or key, or the file itself cannot take a signature."""


class RecordingSynthetic(RecordingError):
    """A recording that Encore made is about to be learnt from, and the user has not accepted that."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            "was made by Encore, so a voice of it is a copy of a copy. Give a recording of the person, or say that you "
            "accept it with --accept-synthetic, in the API with accept_synthetic.",
        )
