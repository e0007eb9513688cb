"""How an installation marks what it speaks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, SecretBytes

from backend.watermark.marker import Marker
from backend.watermark.pattern import PAYLOAD_BITS


class Mark(BaseModel):
    """What every engine puts into what it speaks; without any argument the public mark. Travels to the replicas.

    Attributes:
        installation_key: writes, beside the public mark, a number by which this installation finds the take.
        off_because: why nothing is marked; None where it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    installation_key: SecretBytes | None = None
    off_because: str | None = None

    def payload_of(self, facts: Sequence[str]) -> int | None:
        """The number of a take, the same for the same facts about it; None where none is written."""
        if self.installation_key is None or self.off_because is not None:
            return None
        said = "\0".join(facts).encode()
        digest = hmac.digest(self.installation_key.get_secret_value(), said, hashlib.sha256)
        number: int = int.from_bytes(digest[:8], "big") % (1 << PAYLOAD_BITS)
        return number

    def marker(self, sample_rate: int, payload: int | None) -> Marker | None:
        """What marks one take; None where nothing is marked."""
        if self.off_because is not None:
            return None
        key = self.installation_key.get_secret_value() if self.installation_key and payload is not None else None
        return Marker(sample_rate, installation_key=key, payload=payload or 0)
