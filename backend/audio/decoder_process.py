"""The process in which one recording is decoded: it may crash, hang or be killed, and nothing else is hurt.

Started by `decoding.py` as `python -m backend.audio.decoder_process JOB`. The recording is standard input, opened
by the app: no file name reaches this process. Samples leave as raw numbers on standard output, the outcome as the
last line of standard error, one JSON object. Imports are few because every recording waits for them.
"""

from __future__ import annotations

import errno
import itertools
import json
import operator
import sys
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from backend.audio.confinement import confine
from backend.audio.containers import sniff_container
from backend.audio.decoder_protocol import BYTES_PER_SAMPLE, DecodingJob, Refusal, SampleFormat
from backend.audio.mono_blocks import MonoBlocks
from backend.audio.pcm16 import to_pcm16
from backend.audio.resample import resample_blocks

# Beyond the exact number of samples: the resampler rounds up, the outcome needs a line.
_OUTPUT_SLACK_BYTES = 1 << 20
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Decode standard input as the only argument says, and report."""
    job = DecodingJob.from_json(sys.argv[1])
    with open(0, "rb", buffering=0, closefd=False) as recording, open(1, "wb", buffering=0, closefd=False) as output:
        bytes_out = int(job.limits.max_seconds * job.sample_rate) * BYTES_PER_SAMPLE[job.sample_format]
        confine(job.limits, bytes_out + _OUTPUT_SLACK_BYTES)
        try:
            outcome = _decode(recording, output, job)
        except Refusal as refusal:
            outcome = {"refused": refusal.reason, **refusal.facts}
        except MemoryError:
            outcome = {"refused": "no_memory"}
    sys.stderr.write(f"\n{json.dumps(outcome)}\n")


def _decode(recording: BinaryIO, output: BinaryIO, job: DecodingJob) -> dict[str, str | float]:
    """Write the samples and describe the recording, by the names of `Recording`.

    Raises:
        Refusal: it is not accepted.
        MemoryError: it needs more than the limit.
    """
    kind = sniff_container(recording)
    if kind is None:
        raise Refusal("unknown_container")
    blocks = MonoBlocks(recording, kind, job.limits)
    num_samples = 0
    for block in _resample(blocks, job.sample_rate):
        _write_all(output, _to_bytes(block, job.sample_format))
        num_samples += len(block)
    return {
        "num_samples": num_samples,
        "source_sample_rate": blocks.sample_rate,
        "source_channels": blocks.channels,
        "source_seconds": blocks.seconds,
        "container": kind,
        "codec": blocks.codec,
        "comment": blocks.comment,
    }


def _resample(blocks: MonoBlocks, sample_rate: int) -> Iterator[NDArray[np.float32]]:
    """Bring all blocks to one rate, each run of blocks of the same rate with a resampler of its own."""
    for rate, run in itertools.groupby(blocks, key=operator.itemgetter(0)):
        yield from resample_blocks((block for _, block in run), rate, sample_rate)


def _to_bytes(block: NDArray[np.float32], sample_format: SampleFormat) -> bytes:
    return block.tobytes() if sample_format == "float32" else to_pcm16(block).tobytes()


def _write_all(output: BinaryIO, content: bytes) -> None:
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[output.write(rest) :]
    except OSError as error:
        if error.errno in _OUT_OF_SPACE:
            raise Refusal("no_space") from error
        raise


if __name__ == "__main__":
    main()
