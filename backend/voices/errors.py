"""What can go wrong with voices."""

from __future__ import annotations

from training.model.errors import EncoreError


class VoiceError(EncoreError):
    """A voice cannot be made, found or changed."""


class VoiceNotFound(VoiceError):
    """There is no voice of that name."""


class VoiceNameTaken(VoiceError):
    """Another voice has the name already."""


class VoiceNameInvalid(VoiceError):
    """Something that cannot be a voice's name."""


class ConsentMissing(VoiceError):
    """Nobody has said that this voice may be cloned."""


class ConsentInvalid(VoiceError):
    """A consent that was given, but does not hold."""


class VoiceFileInvalid(VoiceError):
    """A voice file that is damaged, or holds what no voice file holds."""
