"""SIGKILL of a process of Ray Serve under load: what breaks says so, nothing sounds wrong, and the next is served."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.backend.serving.api.served import is_same_sound
from tests.faults.attack import Attack, Outcome, Result, left_behind
from tests.faults.world import PATIENCE_SECONDS, SPOKEN, Served, World, as_started
from tests.golden import GOLDEN_CHECKPOINT
from training.model.project import PROJECT_FOLDER

ENGINE, INGRESS, PROXY, CONTROLLER = (
    "ServeReplica:encore:SpeechEngine",
    "ServeReplica:encore:Api",
    "ProxyActor",
    "ServeController",
)
ROLES = ((ENGINE, 1), (ENGINE, 2), (INGRESS, 1), (PROXY, 1), (CONTROLLER, 1))
"""What is killed, and how many engines there are."""
START_SECONDS = 300.0
LONGEST_SECONDS = 120.0
"""Until an answer after a kill; `docs/security.md` says how long it takes on a quiet machine."""
ONE_SECONDS = 60.0
MAX_SECONDS = 4.0
"""Of load before the kill, and at least as long after the next good answer."""
SPEECH = "/v1/audio/speech"


@dataclass
class Load:
    """Clients that ask again and again, and what they were told."""

    served: Served
    sound: bytes
    may_be_cut: bool
    """Whether connections may break without an answer, because the process that holds them is killed."""
    wrong: list[str] = field(default_factory=list)
    num_whole: int = 0
    num_broken: int = 0
    _is_over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        """Begin."""
        self._threads = [threading.Thread(target=self._ask, args=(way,)) for way in (_whole, _stream, _events)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let those that are under way end."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, way: Callable[[httpx.Client], bytes]) -> None:
        with self.served.client() as client:
            while not self._is_over.is_set():
                try:
                    heard = way(client)
                except Broken as said:
                    self.num_broken += 1
                    self._hear(str(said), way)
                    self._is_over.wait(0.2)
                except httpx.HTTPError as error:
                    self.num_broken += 1
                    # The only word that sound without events has for it.
                    if not self.may_be_cut and not (way is _stream and isinstance(error, httpx.RemoteProtocolError)):
                        self.wrong.append(f"{way.__name__}: {type(error).__name__} {error}")
                    self._is_over.wait(0.2)
                else:
                    self.num_whole += 1
                    if not is_same_sound(heard, self.sound):
                        self.wrong.append(f"{way.__name__}: {len(heard)} bytes that sound different")

    def _hear(self, said: str, way: Callable[[httpx.Client], bytes]) -> None:
        try:
            detail = json.loads(said)["error"]
            is_form = bool(detail["message"]) and detail.keys() == {"message", "type", "param", "code"}
        except (ValueError, KeyError, TypeError, AttributeError):
            is_form = False
        if not is_form or "internal_error" in said:
            self.wrong.append(f"{way.__name__}: {said[:200]!r}")


class Broken(Exception):
    """An answer that is not the sound; carries it."""


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """One role, killed once."""
    role, num_engines = rng.choice(ROLES)
    moment = rng.random() * MAX_SECONDS
    yield from kill(role, num_engines, moment, world)


def kill(role: str, num_engines: int, moment: float, world: World) -> Iterator[Outcome]:
    """Kill a process after so many seconds of load."""
    what = f"Serve without {role.rpartition(':')[2]} of {num_engines} after {moment:.1f} s"
    # Names of sockets have to be short.
    with world.scratch() as folder, tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp") as short:
        os.environ.update(RAY_worker_niceness="0", RAY_TMPDIR=short)
        home = Path(shutil.copytree(world.home, folder / "home"))
        with _start_on_ray(home, num_engines) as served:
            with served.client() as client:
                sound = _whole(client)
            with Load(served, sound, may_be_cut=role == PROXY) as load:
                time.sleep(moment)
                _process_of(served, role).kill()
                seconds = _until_served(served, load)
                time.sleep(MAX_SECONDS)
        numbers = f"next after {seconds:.1f} s, {load.num_whole} whole, {load.num_broken} broken"
        if load.wrong or seconds > LONGEST_SECONDS:
            yield Outcome(result=Result.WRONG, what=f"{what}, {numbers}: {load.wrong[:4]}")
        else:
            yield Outcome(result=Result.RECOVERED, what=f"{what}, {numbers}")
    yield from left_behind(what, [*world.living(), *world.left_in_temporary()])


def _until_served(served: Served, load: Load) -> float:
    """Seconds until a new client hears the sound."""
    began = time.monotonic()
    with contextlib.closing(served.client()) as client:
        while time.monotonic() - began < 2 * LONGEST_SECONDS:
            try:
                heard = _whole(client)
            except (Broken, httpx.HTTPError):
                time.sleep(0.1)
                continue
            if not is_same_sound(heard, load.sound):
                load.wrong.append("the next answer sounds different")
            break
    return time.monotonic() - began


def _whole(client: httpx.Client) -> bytes:
    answer = client.post(SPEECH, json=SPOKEN, timeout=ONE_SECONDS)
    if answer.status_code != 200:
        raise Broken(answer.text)
    return answer.content


def _stream(client: httpx.Client) -> bytes:
    with client.stream("POST", SPEECH, json=SPOKEN | {"stream": True}, timeout=ONE_SECONDS) as answer:
        if answer.status_code != 200:
            raise Broken(answer.read().decode(errors="replace"))
        return b"".join(answer.iter_raw())


def _events(client: httpx.Client) -> bytes:
    sound = b""
    with client.stream("POST", SPEECH, json=SPOKEN | {"stream_format": "sse"}, timeout=ONE_SECONDS) as answer:
        if answer.status_code != 200:
            raise Broken(answer.read().decode(errors="replace"))
        for line in answer.iter_lines():
            event = json.loads(line.removeprefix("data: ")) if line else {"type": ""}
            match event["type"]:
                case "speech.audio.delta":
                    sound += b64decode(event["audio"])
                case "speech.audio.error":
                    raise Broken(line.removeprefix("data: "))
                case "speech.audio.done":
                    return sound
    raise Broken("events that end without saying how")


def _process_of(served: Served, role: str) -> psutil.Process:
    for process in psutil.Process(served.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error, IndexError):
            if process.status() != psutil.STATUS_ZOMBIE and role in process.cmdline()[0]:
                return process
    raise AssertionError(f"there is no {role}")


@contextlib.contextmanager
def _start_on_ray(home: Path, num_engines: int) -> Iterator[Served]:
    """`serve` with the tiny checkpoint, on a Ray of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "app.py", "serve", "--port", str(port), "--num-replicas", str(num_engines)]
    command += ["--voice", "Anna", "--num-slots", "2"]
    command += ["--model", str(GOLDEN_CHECKPOINT), "--precision", "fp32", "--device", "cpu"]
    log = home.with_name(f"{home.name}.log")
    environment = as_started() | {"ENCORE_HOME": str(home)}
    with (
        log.open("a") as output,
        subprocess.Popen(command, cwd=PROJECT_FOLDER, env=environment, stdout=output, stderr=output) as process,
    ):
        served = Served(address=f"http://127.0.0.1:{port}", process=process, home=home, log=log, locked=False)  # type: ignore[arg-type]  # its output is bytes, which nobody reads
        children: list[psutil.Process] = []
        try:
            give_up = time.monotonic() + START_SECONDS
            while "Speech API: " not in served.new_log():
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < give_up, log.read_text()[-2000:]
                time.sleep(0.5)
            yield served
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_SECONDS)
            process.kill()
            for child in psutil.wait_procs(children, timeout=20)[1]:
                with contextlib.suppress(psutil.Error):
                    child.kill()


ATTACK = Attack(name="killed Serve", weight=1.0, attack=step, needs_ray=True)
