from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from numpy.typing import NDArray

from backend.audio.writing import WavWriter, write_wav
from backend.errors import AudioWriteFailed
from tests.backend.audio.small_disk import run_on_small_disk
from tests.backend.audio.sounds import sing

RATE = 24_000
FLOATS = st_numpy.arrays(np.float32, st.integers(0, 3_000), elements=st.floats(-4.0, 4.0, width=32))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("takes")


def only_file_in(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


# Each example waits for the disk several times.
@settings(max_examples=30)
@given(FLOATS, st.sampled_from([8_000, 24_000, 48_000]))
def test_what_is_written_is_read_back_clipped(folder: Path, samples: NDArray[np.float32], rate: int) -> None:
    path = folder / "take.wav"
    write_wav(path, samples, rate)
    assert only_file_in(folder) == path
    decoded, decoded_rate = soundfile.read(path, dtype="float32")
    assert decoded_rate == rate
    assert soundfile.info(path).subtype == "PCM_16"
    np.testing.assert_allclose(decoded, np.clip(samples, -1.0, 1.0), atol=1.6 / 32768)


@settings(max_examples=30)
@given(FLOATS, st.lists(st.integers(0, 3_000), max_size=5))
def test_pieces_make_the_same_file_as_the_whole(folder: Path, samples: NDArray[np.float32], cuts: list[int]) -> None:
    path = folder / "take.wav"
    write_wav(path, samples, RATE)
    whole = path.read_bytes()
    with WavWriter(path, RATE) as writer:
        for piece in np.split(samples, sorted(cuts)):
            writer.write(piece)
    assert path.read_bytes() == whole
    assert writer.num_samples == len(samples)


def test_full_scale_is_as_loud_in_both_directions(tmp_path: Path) -> None:
    write_wav(tmp_path / "take.wav", np.array([1.0, -1.0, 7.0, -7.0, 0.0]), RATE)
    with wave.open(str(tmp_path / "take.wav")) as file:
        assert np.frombuffer(file.readframes(5), "<i2").tolist() == [32767, -32767, 32767, -32767, 0]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_a_take_that_is_broken_off_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "take.wav"
    path.write_bytes(b"the old take")

    def break_off() -> None:
        with WavWriter(path, RATE) as writer:
            writer.write(sing(1.0, RATE))
            raise error

    with pytest.raises(error):
        break_off()
    assert only_file_in(tmp_path) == path
    assert path.read_bytes() == b"the old take"


def test_nothing_shows_under_the_name_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    with WavWriter(path, RATE) as writer:
        writer.write(sing(1.0, RATE))
        assert not path.exists()
    assert only_file_in(tmp_path) == path


def test_a_killed_writer_leaves_no_half_file(tmp_path: Path) -> None:
    path = tmp_path / "take.wav"
    program = (
        "import os, signal, pathlib, sys, numpy\n"
        "from backend.audio.writing import WavWriter\n"
        "with WavWriter(pathlib.Path(sys.argv[1]), 24000) as writer:\n"
        "    writer.write(numpy.ones(100_000, numpy.float32))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    project = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=project, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    assert only_file_in(tmp_path).suffix == ".partial"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_not_written(tmp_path: Path, value: float) -> None:
    samples = sing(1.0, RATE)
    samples[77] = value
    with pytest.raises(AudioWriteFailed, match="not numbers"):
        write_wav(tmp_path / "take.wav", samples, RATE)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# The header alone, in the middle of the samples, and in what is only flushed at the end.
@pytest.mark.parametrize("num_bytes", [0, 20_000, 47_000])
def test_when_writing_fails_nothing_is_left(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "take.wav"
    with files_of_at_most(num_bytes), pytest.raises(AudioWriteFailed, match="larger than files may be") as failure:
        write_wav(path, sing(1.0, RATE), RATE)
    assert isinstance(failure.value.__cause__, OSError)
    assert failure.value.__cause__.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    report = run_on_small_disk(
        tmp_path / "small",
        "import sys, pathlib, numpy\n"
        "from backend.audio.writing import write_wav\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "try:\n"
        "    write_wav(folder / 'take.wav', numpy.ones(100_000, numpy.float32), 24000)\n"
        "finally:\n"
        "    print('left:', list(folder.iterdir()), file=sys.stderr)\n",
    )
    assert "AudioWriteFailed: take.wav was not written: the disk is full; free some space" in report
    assert "left: []" in report


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(AudioWriteFailed, match="folder does not exist"):
        write_wav(tmp_path / "absent" / "take.wav", sing(1.0, RATE), RATE)
    with pytest.raises(AudioWriteFailed):
        write_wav(tmp_path / "folder.wav", sing(1.0, RATE), RATE)
    assert only_file_in(tmp_path) == tmp_path / "folder.wav"


def test_others_may_read_what_the_system_lets_them_read(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_wav(tmp_path / "take.wav", sing(1.0, RATE), RATE)
    finally:
        os.umask(old)
    assert (tmp_path / "take.wav").stat().st_mode & 0o777 == 0o644
