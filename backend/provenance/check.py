"""Looks up what a file says of itself: its signed statement, its comment tag, and the watermark in the sound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from backend.audio.canonical import CANONICAL_HZ, CanonicalRecording, read_blocks
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
from backend.provenance.verdict import FoundWatermark, Verdict
from backend.watermark.detector import Detection, Detector, detect

CHECKED_HZ = 24_000
_BLOCK_SAMPLES = 10 * CHECKED_HZ

CheckProgress = Callable[[str, float, float | None], None]
"""Told what is being done, how many seconds of sound are done, and of how many."""


class Checker:
    """Checks files on behalf of one installation, whose own statements it knows from those of others."""

    def __init__(
        self, home: Path | None = None, certificate: Path | None = None, installation_key: bytes | None = None
    ) -> None:
        """Read which certificates are the installation's, or the operator's; without a home no signer is known.

        With the installation's key the watermark tells its takes from those of others.
        """
        self._key = installation_key
        self._signers = known_signers(home, certificate)

    def judge(
        self, path: Path, recording: Recording | CanonicalRecording, limits: DecodingLimits = REFERENCE_DECODING
    ) -> Verdict:
        """What can be said of a file that has been decoded already; what cannot be read is left out."""
        signed = None
        with suppress(RecordingError):
            signed = read_statement(path, signers=self._signers, limits=limits)
        if isinstance(recording, Recording):
            found = detect(recording.samples, recording.sample_rate, self._key)
        else:
            detector = Detector(CANONICAL_HZ, self._key)
            for block in read_blocks(recording.path):
                detector.add(block)
            found = detector.finish()
        return Verdict(
            name=recording.source_name,
            seconds=recording.seconds,
            signed=signed,
            comment=SpeechStatement.from_comment(recording.comment),
            watermark=FoundWatermark.of(found),
        )

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
                watermark = FoundWatermark.of(_listen(samples_path, seconds, self._key, tell))
                comment = SpeechStatement.from_comment(decoded.comment)
        except RecordingError as error:
            if signed is None:
                raise
            return Verdict(name=name, seconds=0.0, signed=signed, problem=str(error))
        return Verdict(name=name, seconds=seconds, signed=signed, comment=comment, watermark=watermark, problem=problem)


def _listen(samples_path: Path, seconds: float, key: bytes | None, tell: CheckProgress) -> Detection:
    """Look for the watermark, block by block."""
    detector, done = Detector(CHECKED_HZ, key), 0
    with samples_path.open("rb") as samples:
        while len(block := np.fromfile(samples, dtype="<i2", count=_BLOCK_SAMPLES)):
            detector.add(from_pcm16(block))
            done += len(block)
            tell("Listening for the watermark", done / CHECKED_HZ, seconds)
    return detector.finish()
