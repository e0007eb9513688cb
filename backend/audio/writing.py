"""Samples to WAV files that are either complete or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import uuid
import wave
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from backend.audio.pcm16 import info_chunk, to_pcm16
from backend.errors import AudioWriteFailed
from backend.store.artifacts import sync_folder

_BYTES_PER_SAMPLE = 2
_HEADER_BYTES = 44
# A RIFF chunk counts its bytes in 32 bits: 24 hours at 24 kHz.
_MAX_COMMENT_BYTES = 4096
_MAX_BYTES = 2**32 - 1 - _HEADER_BYTES - _MAX_COMMENT_BYTES


def write_wav(path: Path, samples: NDArray[np.floating[Any]], sample_rate: int, comment: str = "") -> None:
    """Write mono `samples` of shape (samples,), clipped to [-1, 1], as PCM16 at `sample_rate` Hz to `path`.

    An existing file is replaced in one step; on any error it stays as it was.

    Raises:
        AudioWriteFailed: the disk is full or not writable, or a sample is not a number.
    """
    with WavWriter(path, sample_rate, comment) as writer:
        writer.write(samples)


class WavWriter:
    """Writes a WAV file piece by piece; it appears under its name only when the block is left without an error.

    with WavWriter(path, sample_rate) as writer:
        for samples in stream:
            writer.write(samples)

    Until then the data are in a hidden `.partial` file in the same folder, because only within a file system
    can a file be renamed in one step.
    """

    def __init__(self, path: Path, sample_rate: int, comment: str = "") -> None:
        self._path, self._sample_rate, self._comment = path, sample_rate, comment
        self._partial_path = path.with_name(f".{uuid.uuid4().hex}.partial")
        self.num_samples = 0

    def __enter__(self) -> Self:
        with self._or_not_written():
            # Not tempfile: its files are readable by their owner only, and would stay so under the final name.
            self._file = self._partial_path.open("xb")
        self._wave = wave.open(self._file, "wb")
        self._wave.setparams((1, _BYTES_PER_SAMPLE, self._sample_rate, 0, "NONE", "not compressed"))
        return self

    def write(self, samples: NDArray[np.floating[Any]]) -> None:
        """Append mono `samples` of shape (samples,), clipped to [-1, 1].

        Raises:
            AudioWriteFailed: see `write_wav`; the file will not appear.
        """
        assert samples.ndim == 1, f"mono samples expected, not shape {samples.shape}"
        if not np.isfinite(samples).all():
            raise AudioWriteFailed(self._path.name, problem="some samples are not numbers; generate it again")
        self.write_pcm16(to_pcm16(samples))

    def write_pcm16(self, integers: NDArray[np.int16]) -> None:
        """Append mono samples (samples,) that are 16-bit integers already.

        Raises:
            AudioWriteFailed: see `write_wav`; the file will not appear.
        """
        if (self.num_samples + len(integers)) * _BYTES_PER_SAMPLE > _MAX_BYTES:
            raise AudioWriteFailed(self._path.name, problem="a WAV file holds 4 GB at most; write it in parts")
        with self._or_not_written():
            # Not writeframes, which would patch the header each time.
            self._wave.writeframesraw(integers.astype("<i2", copy=False).tobytes())
        self.num_samples += len(integers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                with self._or_not_written():
                    self._finish()
        finally:
            self._clean_up()

    def _finish(self) -> None:
        self._wave.close()
        if self._comment:
            self._append_comment()
        self._file.flush()
        os.fsync(self._file.fileno())
        os.replace(self._partial_path, self._path)
        sync_folder(self._path.parent)

    def _append_comment(self) -> None:
        """Put the comment behind the samples, and count it as a part of the file."""
        self._file.seek(0, os.SEEK_END)
        self._file.write(info_chunk(self._comment))
        num_bytes = self._file.tell()
        self._file.seek(4)
        self._file.write(struct.pack("<I", num_bytes - 8))

    def _clean_up(self) -> None:
        """Leave nothing behind; what a full disk refused before, it may refuse again on closing."""
        with contextlib.suppress(OSError):
            self._wave.close()
        with contextlib.suppress(OSError):
            self._file.close()
        self._partial_path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _or_not_written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise AudioWriteFailed(self._path.name, problem=_explain(error)) from error


def _explain(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full; free some space and try again"
        case errno.EFBIG:
            return "it is larger than files may be here; write it in parts"
        case errno.ENOENT:
            return "its folder does not exist; create it and try again"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "its folder is write-protected; choose another one"
        case _:
            return f"{error.strerror or error}; choose another folder"
