"""What a decoder process may do and how its end reads; each failure here is a real one."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.audio.decoding import decode_recording
from backend.audio.limits import DecodingLimits
from backend.errors import DecoderFailed
from tests.backend.audio.small_disk import run_on_small_disk
from tests.backend.audio.sounds import sing, write_raw_wav, write_silent_flac

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

RATE = 24_000
# Far more sound than can be decoded before a test gets at the process.
LONG = DecodingLimits(max_seconds=100_000.0)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []
    assert decoders() == []


@pytest.fixture(scope="module")
def half_an_hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_silent_flac(tmp_path_factory.mktemp("long") / "take.flac", minutes=30)


def decoders() -> list[Path]:
    """The /proc folders of the decoder processes started from here."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"backend.audio.decoder_process" in (folder / "cmdline").read_bytes():
                found.append(folder)
        except OSError:  # ended in between
            continue
    return found


@contextmanager
def once_decoder_runs(act: Callable[[Path], bool]) -> Iterator[None]:
    """Call `act` with the decoder's /proc folder, again and again until it returns True."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if any(act(folder) for folder in decoders()):
                return
            time.sleep(0.01)

    monitor = threading.Thread(target=watch)
    monitor.start()
    try:
        yield
    finally:
        done.set()
        monitor.join()


def send(number: signal.Signals) -> Callable[[Path], bool]:
    def act(folder: Path) -> bool:
        os.kill(int(folder.name), number)
        return True

    return act


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGSEGV, "crashed"), (signal.SIGABRT, "crashed"), (signal.SIGKILL, "lack of memory")],
)
def test_a_decoder_that_dies(half_an_hour: Path, number: signal.Signals, words: str) -> None:
    with once_decoder_runs(send(number)), pytest.raises(DecoderFailed, match=words):
        decode_recording(half_an_hour, sample_rate=RATE, limits=LONG)


def test_a_decoder_that_hangs(half_an_hour: Path) -> None:
    limits = DecodingLimits(max_seconds=100_000.0, wall_seconds=1.0)
    with once_decoder_runs(send(signal.SIGSTOP)), pytest.raises(DecoderFailed, match="longer than 1 s"):
        decode_recording(half_an_hour, sample_rate=RATE, limits=limits)


def test_too_much_computing(half_an_hour: Path) -> None:
    limits = DecodingLimits(max_seconds=100_000.0, cpu_seconds=1)
    with pytest.raises(DecoderFailed, match="computing time"):
        decode_recording(half_an_hour, sample_rate=96_000, limits=limits)


def test_too_much_memory(tmp_path: Path) -> None:
    path = write_raw_wav(tmp_path / "take.wav", sing(2.0, 96_000), rate=96_000)
    with pytest.raises(DecoderFailed, match="memory"):
        decode_recording(path, sample_rate=RATE, limits=DecodingLimits(memory_bytes=300_000))


def test_an_interrupted_wait_ends_the_decoder(half_an_hour: Path) -> None:
    def interrupt(folder: Path) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    # Whoever used this process before may have left another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with once_decoder_runs(interrupt), pytest.raises(KeyboardInterrupt):
            decode_recording(half_an_hour, sample_rate=RATE, limits=LONG)
    finally:
        signal.signal(signal.SIGINT, before)


def test_while_decoding_nothing_else_is_in_reach(half_an_hour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    seen: dict[str, str] = {}

    def look(folder: Path) -> bool:
        limits = {line[:26].strip(): line[26:].split()[:2] for line in (folder / "limits").read_text().splitlines()}
        if limits["Max open files"] != ["0", "0"]:
            return False  # not confined yet: still importing
        seen["core"] = limits["Max core file size"][1]
        seen["memory"] = limits["Max address space"][1]
        seen["output"] = limits["Max file size"][1]
        seen["environment"] = (folder / "environ").read_text()
        seen["files"] = " ".join(os.readlink(folder / "fd" / file) for file in sorted(os.listdir(folder / "fd")))
        seen["session"] = (folder / "stat").read_text().rpartition(")")[2].split()[3]
        seen["pid"] = folder.name
        return send(signal.SIGKILL)(folder)

    with once_decoder_runs(look), pytest.raises(DecoderFailed):
        decode_recording(half_an_hour, sample_rate=RATE, limits=LONG)

    assert seen["core"] == "0"
    assert seen["memory"].isdigit()
    assert seen["output"].isdigit()
    assert "secret" not in seen["environment"]
    assert "HOME=" not in seen["environment"]
    recording, samples, report = seen["files"].split()
    assert (Path(recording).name, Path(samples).name) == ("take.flac", "samples")
    assert report.startswith("pipe:")
    assert seen["session"] == seen["pid"]


def test_a_full_temporary_disk(tmp_path: Path) -> None:
    path = write_raw_wav(tmp_path / "take.wav", sing(30.0, RATE))
    result = run_on_small_disk(
        tmp_path / "small",
        "import sys, tempfile, pathlib\n"
        "from backend.audio.decoding import decode_recording\n"
        "tempfile.tempdir = sys.argv[1]\n"
        f"decode_recording(pathlib.Path({str(path)!r}), sample_rate=24000)\n",
    )
    assert "DecoderFailed: take.wav could not be decoded: the disk for temporary files is full" in result
