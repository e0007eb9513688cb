"""What is attacked: homes, the processes that serve them, and what they must not tell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from backend.store.home import Home
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.app_process import start_app
from tests.ui.recordings import write_voice
from training.model.project import PROJECT_FOLDER

MODEL = "tiny"
CONSENT = Consent.give("Anna Example")
KEY, USER, PASSWORD = "a-key-of-the-operator", "ann", "a-password-of-ann"
PATIENCE_SECONDS = 120.0
CANARY = "the canary is a secret of this machine"
OF_OTHERS = ("gradio",)
"""An empty folder that Gradio makes when it is imported, always the same one."""

SPOKEN = {"input": "Hi.", "voice": "Anna", "seed": 1, "response_format": "pcm", "stream": False}


@dataclass(kw_only=True)
class Served:
    """A process that answers to HTTP."""

    address: str
    process: subprocess.Popen[str]
    home: Path
    log: Path
    locked: bool
    read_to: int = 0
    sound: bytes = b""
    """Of `SPOKEN`, once it was asked for."""
    cookie: str = ""
    """Of the operator, once they have logged in."""

    def client(self, **headers: str) -> httpx.Client:
        """A client that has the key."""
        given = {"authorization": f"Bearer {KEY}"} if self.locked else {}
        return httpx.Client(base_url=self.address, headers=given | headers, timeout=PATIENCE_SECONDS)

    @property
    def netloc(self) -> str:
        """Its own name."""
        return urlsplit(self.address).netloc

    def new_log(self) -> str:
        """What it has written since this was last asked."""
        with self.log.open(encoding="utf-8", errors="replace") as file:
            file.seek(self.read_to)
            text = file.read()
            self.read_to = file.tell()
        return text

    def kill(self) -> None:
        """At once, as a power loss does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class World:
    """A folder in which everything of a round happens."""

    folder: Path
    _open: ExitStack = field(default_factory=ExitStack)
    _served: dict[tuple[str, bool], Served] = field(default_factory=dict)
    _made: dict[str, Any] = field(default_factory=dict)
    _count: int = 0
    _seen: set[Path] = field(default_factory=set)
    durations: dict[str, float] = field(default_factory=dict)
    """How many seconds work took that was not disturbed."""

    def __post_init__(self) -> None:
        (self.folder / "temporary").mkdir(parents=True)
        self.canary.write_text(CANARY)
        # Of this process and of all that it starts.
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary)
        # As app.py does for its own process and those that it starts.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "torchinductor")

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of all processes."""
        return self.folder / "temporary"

    def left_in_temporary(self) -> list[Path]:
        """What is new in the folder for temporary files since this was last asked."""
        found = {path for path in self.temporary.iterdir() if path.name not in OF_OTHERS}
        new = sorted(found - self._seen)
        self._seen = found
        return new

    @property
    def canary(self) -> Path:
        """A file beside everything that no attack may read."""
        return self.folder / "canary.txt"

    @cached_property
    def secrets(self) -> dict[str, str]:
        """What no answer may hold, and what it is."""
        return {
            str(self.folder): "a path of the server",
            str(PROJECT_FOLDER / "backend"): "a path of the server",
            CANARY: "a foreign file",
            "root:x:0:0": "a foreign file",
            "SQLite format 3": "a foreign file",
        }

    def new_folder(self) -> Path:
        """One of this attempt's own; the attempt removes it."""
        self._count += 1
        (made := self.folder / f"attempt-{self._count}").mkdir()
        return made

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """One of this attempt's own, until the block ends."""
        made = self.new_folder()
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def once(self, name: str, make: Callable[[Path], Any]) -> Any:
        """What `make` made in a folder of its own when it was first asked for."""
        if name not in self._made:
            (folder := self.folder / name).mkdir(exist_ok=True)
            self._made[name] = make(folder)
        return self._made[name]

    @property
    def recording(self) -> Path:
        """A good one."""
        return Path(self.once("recording", lambda folder: write_voice(folder / "anna.wav", seconds=1.2)))

    @property
    def home(self) -> Path:
        """With a zero-shot and a fine-tuned voice; to be copied, not to be changed."""
        return Path(self.once("home", self._make_home))

    def _make_home(self, folder: Path) -> Path:
        voices = Voices(Home(folder))
        voices.create_zero_shot("Anna", self.recording, consent=CONSENT, model=MODEL, transcript="Hello.")
        checkpoint = fine_tuned_checkpoint(self.folder / "custom_voice", scale=1.5)
        voices.add_fine_tuned(
            "Tuned", {"custom_voice": checkpoint}, consent=CONSENT, model=MODEL, reference=self.recording
        )
        return folder

    def server(self, *, locked: bool) -> Served:
        """The API with this lock; one process for all that ask for it."""
        return self._keep("server", locked, lambda home: start_server(home, locked=locked))

    def studio(self, *, locked: bool) -> Served:
        """The page without a model, with this lock; one process for all that ask for it."""
        return self._keep("studio", locked, lambda home: start_studio(home, locked=locked))

    def _keep(self, kind: str, locked: bool, start: Callable[[Path], Any]) -> Served:
        if (kind, locked) not in self._served:
            home = shutil.copytree(self.home, self.folder / f"{kind}-{'locked' if locked else 'open'}")
            self._served[kind, locked] = self._open.enter_context(start(home))
        return self._served[kind, locked]

    def close(self) -> list[str]:
        """End all processes as a service manager does; returns what they leave in the temporary folder."""
        for served in self._served.values():
            served.process.send_signal(signal.SIGTERM)
            served.process.wait(PATIENCE_SECONDS)
        self._open.close()
        return [path.name for path in sorted(self.temporary.iterdir()) if path.name not in OF_OTHERS] + self.living()

    def living(self) -> list[str]:
        """Processes that belong to this world beside those that serve it, once they have had time to end."""
        known = {served.process.pid for served in self._served.values()}
        give_up = time.monotonic() + 20
        while (found := [one for one in self._processes() if one.pid not in known]) and time.monotonic() < give_up:
            time.sleep(0.1)
        return [_described(one) for one in found]

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter(["status"]):
            if process.info["status"] == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            try:
                if any(str(self.folder) in part for part in process.cmdline()):
                    yield process
            except psutil.Error:
                continue  # it has just ended


def _described(process: psutil.Process) -> str:
    try:
        return f"process {process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"process {process.pid}"


def as_started() -> dict[str, str]:
    """The environment that a person's shell has."""
    return {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}


@contextmanager
def start_server(home: Path, *, locked: bool) -> Iterator[Served]:
    """`serve --local` with the tiny checkpoint."""
    command = [sys.executable, "app.py", "serve", "--local", "--port", "0", "--voice", "Anna"]
    command += ["--model", str(GOLDEN_CHECKPOINT), "--precision", "fp32", "--device", "cpu", "--num-slots", "2"]
    environment = as_started() | {"ENCORE_HOME": str(home)}
    # A proxy in front lets attacks come from several addresses.
    environment |= {"ENCORE_API_KEYS": KEY, "ENCORE_TRUSTED_PROXIES": "127.0.0.1"} if locked else {}
    log = home.with_name(f"{home.name}.log")
    with (
        log.open("a") as errors,
        subprocess.Popen(
            command, cwd=PROJECT_FOLDER, env=environment, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Speech API: http://127.0.0.1:"), f"{line!r}, {log.read_text()[-2000:]}"
            address = line.split()[2].removesuffix("/v1")
            yield Served(address=address, process=process, home=home, log=log, locked=locked)
        finally:
            process.kill()


@contextmanager
def start_studio(home: Path, *, locked: bool) -> Iterator[Served]:
    """The studio as a person starts it, with a model that is not there: nothing here speaks."""
    settings = {"TRUSTED_PROXIES": "127.0.0.1"} | ({"AUTH": f"{USER}:{PASSWORD}"} if locked else {})
    with start_app(home, model="/no/such/folder", **settings) as app:
        yield Served(address=app.address.rstrip("/"), process=app.process, home=home, log=app.log, locked=locked)
