"""What can go wrong with voices."""

from __future__ import annotations

from training.model.errors import EncoreError


class VoiceError(EncoreError):
    """A voice cannot be made, found or changed."""


class VoiceNotFound(VoiceError):
    """No voice has this name."""


class VoiceNameTaken(VoiceError):
    """Another voice has the name already."""


class VoiceLimitReached(VoiceError):
    """The tenant has as many voices as the operator allows."""


class VoiceNameInvalid(VoiceError):
    """The name cannot be used for a voice."""


class VoiceStyleUnknown(VoiceError):
    """The voice was not trained with this style."""


class ConsentMissing(VoiceError):
    """No consent to clone this voice was given."""


class ConsentInvalid(VoiceError):
    """A consent was given but is not valid."""


class VoiceFileInvalid(VoiceError):
    """A voice file is damaged, or holds something that does not belong in one."""
