"""Looks up what a file says of itself: its signed statement, its comment tag, and the watermark in the sound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from backend.audio.canonical import CanonicalRecording
from backend.audio.decoder_protocol import DecodingJob
from backend.audio.decoding import decoded_samples
from backend.audio.limits import REFERENCE_DECODING, DecodingLimits, recording_decoding
from backend.audio.pcm16 import from_pcm16
from backend.audio.recording import Recording
from backend.errors import RecordingError
from backend.provenance.credentials import known_signers
from backend.provenance.errors import RecordingSynthetic
from backend.provenance.reading import SignedStatement, read_statement
from backend.provenance.statement import SpeechStatement
from backend.provenance.verdict import Verdict

CHECKED_HZ = 24_000
_BLOCK_SAMPLES = 10 * CHECKED_HZ

CheckProgress = Callable[[str, float, float | None], None]
"""Told what is being done, how many seconds of sound are done, and of how many."""


class Checker:
    """Checks files on behalf of one installation, whose own statements it knows from those of others."""

    def __init__(self, home: Path | None = None, certificate: Path | None = None) -> None:
        """Read which certificates are the installation's, or the operator's; without a home no signer is known."""
        self._signers = known_signers(home, certificate)

    def judge(
        self, path: Path, recording: Recording | CanonicalRecording, limits: DecodingLimits = REFERENCE_DECODING
    ) -> Verdict:
        """What can be said of a file that has been decoded already; what cannot be read is left out."""
        signed = None
        with suppress(RecordingError):
            signed = read_statement(path, signers=self._signers, limits=limits)
        comment = SpeechStatement.from_comment(recording.comment)
        return Verdict(name=recording.source_name, seconds=recording.seconds, signed=signed, comment=comment)

    def refuse_synthetic(self, path: Path, recording: Recording) -> None:
        """Let a recording pass only if nothing says that Encore made it. Raises RecordingSynthetic."""
        if self.judge(path, recording).is_made_by_encore:
            raise RecordingSynthetic(recording.source_name)

    def check(
        self,
        path: Path,
        *,
        name: str | None = None,
        limits: DecodingLimits | None = None,
        progress: CheckProgress | None = None,
    ) -> Verdict:
        """What can be said of an untrusted file.

        Args:
            path: the file; read and decoded in processes of their own.
            name: what it is called, where the file has another name.
            limits: of length, size and effort; by default those of a dataset's recordings.
            progress: told how far it is.

        Raises:
            RecordingError: it is not there, or is no recording.
        """
        name, limits = name or path.name, limits or recording_decoding()
        tell = progress or (lambda *_: None)
        tell("Reading the signed statement", 0.0, None)
        signed: SignedStatement | None = None
        problem = ""
        try:
            signed = read_statement(path, signers=self._signers, limits=limits, name=name)
        except RecordingError as error:
            # Not readable as a file is one thing, not readable as a statement another: decoding tells.
            problem = str(error)
        tell("Decoding", 0.0, None)
        job = DecodingJob(sample_rate=CHECKED_HZ, limits=limits, sample_format="pcm16")
        try:
            with decoded_samples(path, job, name=name) as (samples_path, decoded):
                seconds = decoded.num_samples / CHECKED_HZ
                _listen(samples_path, seconds, tell)
                comment = SpeechStatement.from_comment(decoded.comment)
        except RecordingError as error:
            if signed is None:
                raise
            return Verdict(name=name, seconds=0.0, signed=signed, problem=str(error))
        return Verdict(name=name, seconds=seconds, signed=signed, comment=comment, problem=problem)


def _listen(samples_path: Path, seconds: float, tell: CheckProgress) -> None:
    """Go through the samples in blocks."""
    done = 0
    with samples_path.open("rb") as samples:
        while len(block := np.fromfile(samples, dtype="<i2", count=_BLOCK_SAMPLES)):
            from_pcm16(block)
            done += len(block)
            tell("Listening for the watermark", done / CHECKED_HZ, seconds)
