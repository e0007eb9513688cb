"""What a decoder process may do and how its end reads; each failure here is a real one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from backend.audio.decoding import decode_recording
from backend.audio.limits import DecodingLimits
from backend.errors import DecoderFailed
from tests.backend.audio.small_disk import run_on_small_disk
from tests.backend.audio.sounds import sing, write_raw_wav, write_silent_flac

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

PROJECT = Path(__file__).parents[3]
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
    """The /proc folders of the decoder processes started for this one: copies of a server that this one started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"backend.audio.decoder_process" in (folder / "cmdline").read_bytes():
                parents[folder] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended in between
            continue
    servers = {int(folder.name) for folder, parent in parents.items() if parent == os.getpid()}
    return [folder for folder, parent in parents.items() if parent in servers]


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


def servers() -> list[int]:
    """The processes that decoders are copied from, of this one."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # one that has ended, which another test did not wait for
            if child.cmdline()[-2:] == ["backend.audio.fork_server", "backend.audio.decoder_process"]:
                found.append(child.pid)
    return found


def gone(process_id: int) -> bool:
    return not psutil.pid_exists(process_id) or psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


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
        seen["files"] = "\n".join(os.readlink(folder / "fd" / file) for file in sorted(os.listdir(folder / "fd")))
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
    recording, samples, report = seen["files"].splitlines()
    assert (Path(recording).name, Path(samples).name) == ("take.flac", "samples")
    assert report.startswith("pipe:")
    assert seen["session"] == seen["pid"]


def test_every_recording_has_a_process_of_its_own(half_an_hour: Path) -> None:
    seen = []

    def look(folder: Path) -> bool:
        seen.append(folder.name)
        return send(signal.SIGKILL)(folder)

    for _ in range(2):
        with once_decoder_runs(look), pytest.raises(DecoderFailed):
            decode_recording(half_an_hour, sample_rate=RATE, limits=LONG)
    assert len(set(seen)) == 2


def test_what_decoders_are_copied_from_may_die(tmp_path: Path) -> None:
    path = write_raw_wav(tmp_path / "take.wav", sing(0.5, RATE))
    before = decode_recording(path, sample_rate=RATE)
    [server] = servers()
    os.kill(server, signal.SIGKILL)
    after = decode_recording(path, sample_rate=RATE)
    assert (after.samples == before.samples).all()
    assert server not in servers()


def test_several_are_decoded_at_once(tmp_path: Path) -> None:
    paths = [write_raw_wav(tmp_path / f"{number}.wav", sing(0.5 + number / 10, RATE)) for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        lengths = list(threads.map(lambda path: len(decode_recording(path, sample_rate=RATE).samples), paths))
    assert lengths == [round((0.5 + number / 10) * RATE) for number in range(8)]


def test_nothing_outlives_an_app_that_is_killed(half_an_hour: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from backend.audio.decoding import decode_recording; "
        "from backend.audio.limits import DecodingLimits; "
        "decode_recording(pathlib.Path(sys.argv[1]), sample_rate=24000, limits=DecodingLimits(max_seconds=1e5))"
    )
    # Its own temporary files stay, as a killed program's do.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code, str(half_an_hour)], env=environment, cwd=PROJECT) as app:
        family = psutil.Process(app.pid)
        wait_until(lambda: len(family.children(recursive=True)) == 2)
        started = [process.pid for process in family.children(recursive=True)]
        app.kill()
    wait_until(lambda: all(map(gone, started)))


def test_it_ends_when_nobody_asks() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = "from backend.audio import fork_server; fork_server.IDLE_SECONDS = 0.1; fork_server.main()"
    command = [sys.executable, "-c", code, "backend.audio.decoder_process"]
    with ours, theirs, subprocess.Popen(command, stdin=theirs.fileno(), cwd=PROJECT) as server:
        assert server.wait(60) == 0


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
