"""A process that has imported what reads untrusted files, and makes a fresh copy of itself for each file.

Started by `confined_process.py` as `python -m backend.audio.fork_server MODULE`, with a socket as standard input.
Imports take ten times as long as decoding a short recording; a copy starts with them done. Each copy reads one file, is
confined before it does, and ends: what one file does to its process, the next one never meets. This process itself
reads none.

A request is one message: an argument and a folder as JSON, and four descriptors (the file, where output goes, where
errors go, and a socket for the answer). The answer is the copy's exit code, negative for the signal that ended it. A
copy whose client hangs up is killed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable

IDLE_SECONDS = 10.0
"""Without a request for so long it ends, and with it the memory that it holds."""
MAX_REQUEST_BYTES = 1 << 17
NO_PROCESS = b"none"
"""The answer where the system has no room for another process."""
_NUM_DESCRIPTORS = 4


class ForkServer:
    """Serves the socket that is standard input until it is closed or idle."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        """Copies call `run`, with the request's argument as the only one of the command line `name`."""
        self._name, self._run = name, run
        self._requests = socket.socket(fileno=0)
        self._clients: dict[int, socket.socket] = {}  # by the process that works for them
        self._selector = selectors.DefaultSelector()
        # A child that ends wakes the wait for the next message.
        self._wakeup, wakes = socket.socketpair()
        self._wakeup.setblocking(False)
        wakes.setblocking(False)
        self._wakes = wakes
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        for one in (self._requests, self._wakeup):
            self._selector.register(one, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the app is gone, or has not asked for anything for a while."""
        is_open = True
        while is_open or self._clients:
            ready = [key.fileobj for key, _ in self._selector.select(None if self._clients else IDLE_SECONDS)]
            if not ready and not self._clients:
                return
            for one in ready:
                if one is self._requests:
                    is_open = self._take_request()
                elif one is self._wakeup:
                    with contextlib.suppress(BlockingIOError):
                        self._wakeup.recv(4096)
                else:
                    self._kill_for(one)
            self._answer_ended()

    def _take_request(self) -> bool:
        """Start a copy for the next request; false where the app is gone, and nobody waits for what is under way."""
        message, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, _NUM_DESCRIPTORS)
        if not message:
            self._selector.unregister(self._requests)
            for running in self._clients:
                _kill(running)
            return False
        request = json.loads(message)
        *streams, answer = descriptors
        client = socket.socket(fileno=answer)
        process: int | None = None
        with contextlib.suppress(OSError):
            process = os.fork()
        if process == 0:
            self._become_copy(request["argument"], request["folder"], streams)
        for stream in streams:
            os.close(stream)
        if process is None:
            with contextlib.suppress(OSError), client:
                client.sendall(NO_PROCESS)
            return True
        self._clients[process] = client
        self._selector.register(client, selectors.EVENT_READ)
        return True

    def _become_copy(self, argument: str, folder: str, streams: list[int]) -> None:
        """In the copy: nothing of this process stays but what it has imported."""
        exit_code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # A group of its own, so that killing it reaches whatever it may have started.
            os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
            os.chdir(folder)
            sys.argv = [self._name, argument]
            self._run()
            sys.stderr.flush()
            exit_code = 0
        except BaseException:  # noqa: BLE001 - the copy ends here, and the reason is told as an interpreter would
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(exit_code)

    def _kill_for(self, client: object) -> None:
        """A client has hung up: it waits no longer."""
        for process, waiting in self._clients.items():
            if waiting is client:
                self._selector.unregister(waiting)
                _kill(process)

    def _answer_ended(self) -> None:
        while self._clients:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            client = self._clients.pop(process)
            with contextlib.suppress(KeyError):
                self._selector.unregister(client)
            with contextlib.suppress(OSError):  # the app is gone
                client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            client.close()


def _kill(process: int) -> None:
    # Until it is waited for, the number is its own. Before it has a group, it is killed alone.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def main() -> None:
    """Import the module that is named, and serve."""
    name = sys.argv[1]
    run = importlib.import_module(name).main
    # Copies share this process's memory until they write to it: the collector would touch all of it.
    gc.collect()
    gc.freeze()
    ForkServer(name, run).serve()


if __name__ == "__main__":
    main()
