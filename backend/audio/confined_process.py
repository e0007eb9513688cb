"""Reads an untrusted file in a process of its own, which is killed whatever happens.

On Linux the process is a copy of one that has imported what it needs (`fork_server.py`). Elsewhere, where a process
that has loaded the system's libraries must not be copied, an interpreter is started for each file.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from backend.audio.fork_server import MAX_REQUEST_BYTES, NO_PROCESS
from backend.audio.limits import DecodingLimits
from backend.errors import DecoderFailed, RecordingNotAudio, RecordingNotFound, RecordingTooLarge
from training.model.project import PROJECT_FOLDER

_SERVER = "backend.audio.fork_server"
# Some Pythons (conda, modules of a cluster) do not start without these; nothing else is handed on.
_INHERITED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
# Many times what a busy machine takes to end a process.
_END_SECONDS = 10.0
_MAX_ANSWER_BYTES = 1 << 16


@contextlib.contextmanager
def open_foreign_file(path: Path, name: str, limits: DecodingLimits) -> Iterator[int]:
    """A descriptor of a regular file of acceptable size; this open file is decoded, whatever its name becomes."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise RecordingNotFound(name, problem="does not exist") from None
    except OSError as error:
        raise RecordingNotFound(name, problem=f"cannot be opened ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise RecordingNotFound(name, problem="is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise RecordingNotFound(name, problem="is not a regular file")
        if status.st_size == 0:
            raise RecordingNotAudio(name, problem="is empty")
        if status.st_size > limits.max_bytes:
            raise RecordingTooLarge(name, num_bytes=status.st_size, max_bytes=limits.max_bytes)
        yield descriptor
    finally:
        os.close(descriptor)


def run_confined(
    module: str, argument: str, limits: DecodingLimits, recording: int, output: BinaryIO, name: str
) -> tuple[int, bytes]:
    """Run a module that reads an untrusted file to its end or to the end of its time; it confines itself.

    Args:
        module: whose `main` is run; the file is its standard input.
        argument: its only one.
        limits: of which the time is kept from here.
        recording: descriptor of the file.
        output: file for its standard output, in the folder that it runs in.
        name: of the file, for errors.

    Returns its exit code (negative: the signal that ended it) and the last of what it said.

    Raises:
        DecoderFailed: it cannot be started, or takes too long.
    """
    try:
        if sys.platform == "linux":
            return _run_copy(module, argument, limits, recording, output)
        return _run_anew(module, argument, limits, recording, output)
    except (TimeoutError, subprocess.TimeoutExpired):
        raise DecoderFailed(name, cause=f"it took longer than {limits.wall_seconds:g} s") from None
    except OSError as error:
        raise DecoderFailed(name, cause=f"its process could not be started ({error.strerror})") from error


def process_environment() -> dict[str, str]:
    """No secrets, no proxies, no settings: only what a Python needs to find the same packages as this one."""
    import_path = [str(PROJECT_FOLDER), *(entry for entry in sys.path if os.path.isabs(entry))]
    inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    # One thread: decoding has no use for more, and each would take address space from the limit.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {"PYTHONPATH": os.pathsep.join(import_path), "PYTHONUTF8": "1", **threads, **inherited}


class _Server:
    """A process that copies itself for each file; it ends by itself once nobody asks."""

    def __init__(self, module: str) -> None:
        """Start it. Raises OSError."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    # -P: the folder it runs in does not become a place to import from.
                    [sys.executable, "-P", "-m", _SERVER, module],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    env=process_environment(),
                    # Ctrl-C in a terminal is for the app, which ends what it started.
                    start_new_session=True,
                )
            except BaseException:
                self._socket.close()
                raise
        atexit.register(self.close)

    def send(self, message: bytes, descriptors: list[int]) -> None:
        """Ask for a copy. Raises OSError: it has ended."""
        socket.send_fds(self._socket, [message], descriptors)

    def close(self) -> None:
        """End it, with all copies."""
        atexit.unregister(self.close)
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)


_servers: dict[tuple[int, str], _Server] = {}
"""By the process that started it, for what was forked off must not speak for it, and by module."""
_servers_lock = threading.Lock()


def _server_of(module: str) -> _Server:
    with _servers_lock:
        key = os.getpid(), module
        if key not in _servers:
            _servers[key] = _Server(module)
        return _servers[key]


def _forget(server: _Server) -> None:
    """The next call starts another one."""
    with _servers_lock:
        for key in [key for key, one in _servers.items() if one is server]:
            del _servers[key]
    server.close()


def _run_copy(
    module: str, argument: str, limits: DecodingLimits, recording: int, output: BinaryIO
) -> tuple[int, bytes]:
    """Have the module's server copied for one file. Raises OSError; TimeoutError where it took too long."""
    message = json.dumps({"argument": argument, "folder": str(Path(output.name).absolute().parent)}).encode()
    assert len(message) <= MAX_REQUEST_BYTES
    for _ in range(2):
        # It may have ended at this moment, because nobody had asked for a while.
        outcome = _ask(_server_of(module), message, limits, [recording, output.fileno()])
        if outcome is not None:
            return outcome
    raise OSError(errno.EPIPE, "it ends before it reads anything; is the installation complete?")


def _ask(server: _Server, message: bytes, limits: DecodingLimits, streams: list[int]) -> tuple[int, bytes] | None:
    """Exit code and last words of a copy; None where the server is gone."""
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()
    with ours, open(reader, "rb", buffering=0) as report:
        with theirs, open(writer, "wb", buffering=0):
            try:
                server.send(message, [*streams, writer, theirs.fileno()])
            except (BrokenPipeError, ConnectionResetError):
                _forget(server)
                return None
        answer = _wait(ours, limits.wall_seconds)
        if not answer:
            _forget(server)
            return None
        if answer == NO_PROCESS:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        # All it said is in the pipe by now; what does not fit there has no place in an answer.
        os.set_blocking(reader, False)
        return int(answer), report.read(_MAX_ANSWER_BYTES) or b""


def _wait(answer: socket.socket, seconds: float) -> bytes:
    """What the server answers; also on Ctrl-C and when a job is cancelled the copy has ended afterwards."""
    answer.settimeout(seconds)
    try:
        return answer.recv(len(NO_PROCESS))
    except BaseException:
        answer.shutdown(socket.SHUT_WR)
        answer.settimeout(_END_SECONDS)
        with contextlib.suppress(TimeoutError):
            answer.recv(len(NO_PROCESS))
        raise


def _run_anew(
    module: str, argument: str, limits: DecodingLimits, recording: int, output: BinaryIO
) -> tuple[int, bytes]:
    """Start an interpreter for one file. Raises OSError, subprocess.TimeoutExpired."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with _interrupts_put_off():
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, argument],
                stdin=recording,
                stdout=output,
                # Not a file: a full disk must not swallow the report that it is full.
                stderr=subprocess.PIPE,
                cwd=Path(output.name).parent,
                env=process_environment(),
                # A group of its own, so that killing it reaches whatever it may have started.
                start_new_session=True,
            )
        exit_code = process.wait(timeout=limits.wall_seconds)
        # All it said is in the pipe by now; what does not fit there has no place in an answer.
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        return exit_code, process.stderr.read() or b""
    finally:
        # Also on Ctrl-C and when a job is cancelled.
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            assert process.stderr is not None
            process.stderr.close()


@contextlib.contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """Delay Ctrl-C to the end of a block, so that a process that was just started can be ended."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield  # other threads never receive interrupts
        return
    put_off: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: put_off.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if put_off:
            handler(*put_off[0])
