"""SIGKILL of a server while it speaks or keeps something, or of an import: the next start has all that was said."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from backend.store.home import Home
from backend.voices.registry import Voices
from tests.faults.api_requests import honest
from tests.faults.attack import Attack, Outcome, Result, left_behind
from tests.faults.http import complaints
from tests.faults.world import SPOKEN, Served, World, as_started, start_server
from training.model.project import PROJECT_FOLDER

MAX_SECONDS = 3.0
"""Of work before it ends."""
IMPORT_SECONDS = 12.0
VOICES, SPEECH, TAKES = "/v1/audio/voices", "/v1/audio/speech", "/v1/audio/takes"


class Promises:
    """What a server has acknowledged, and must have after every start."""

    def __init__(self) -> None:
        self.voices: dict[str, str] = {}
        self.takes: dict[str, bytes] = {}

    def make_voice(self, client: httpx.Client, name: str, recording: bytes) -> None:
        """Store a voice."""
        form = {"name": name, "consent": "own-voice", "consent_by": "Anna"}
        answer = client.post(VOICES, data=form, files={"audio_sample": ("a.wav", recording)})
        if answer.status_code == 201:
            self.voices[answer.json()["id"]] = name

    def make_take(self, client: httpx.Client, seed: int) -> None:
        """Speak; a take that is listed is kept."""
        client.post(SPEECH, json=SPOKEN | {"seed": seed, "response_format": "wav"})
        for take in client.get(TAKES).json()["data"]:
            if take["id"] not in self.takes:
                self.takes[take["id"]] = client.get(f"{TAKES}/{take['id']}/content").content

    def missing(self, client: httpx.Client) -> list[str]:
        """What is not as it was said."""
        named = {one["id"]: one["name"] for one in client.get(VOICES).json()["data"]}
        lost = [f"voice {name}" for key, name in self.voices.items() if named.get(key) != name]
        for key, content in self.takes.items():
            found = client.get(f"{TAKES}/{key}/content")
            if found.status_code != 200 or found.content != content:
                lost.append(f"take {key}, status {found.status_code}")
        return lost


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """A kill in a random phase at a random moment, and the start after it."""
    promises = Promises()
    with world.scratch() as folder:
        home = Path(shutil.copytree(world.home, folder / "home"))
        for phase in rng.sample(PHASES, 1):
            moment = rng.random()
            what = f"killed while {phase.__name__.strip('_').replace('_', ' ')}, at {moment:.3f}"
            with start_server(home, locked=False) as served:
                with served.client() as client:
                    promises.make_voice(client, "First", world.recording.read_bytes())
                    promises.make_take(client, 1)
                phase(served, promises, rng, moment, world)
                served.kill()
            with start_server(home, locked=False) as served:
                with served.client() as client:
                    missing = promises.missing(client)
                result = Result.LOST if missing else Result.RECOVERED
                yield Outcome(result=result, what=f"{what}: {missing}" if missing else what)
                yield honest(served, world)
                yield from complaints(what, served)
                yield from left_behind(what, _leftovers(home))
        yield from left_behind(what, [*world.living(), *world.left_in_temporary()])


def _leftovers(home: Path) -> list[Path]:
    working = [
        path for name in ("takes/incoming", "artifacts/incoming", "cache/unpacked") for path in (home / name).glob("*")
    ]
    kept = {voice.folder for voice in Voices(Home(home)).list()}
    return [*working, *(path for path in (home / "voices").iterdir() if path.is_dir() and path not in kept)]


def _busily(work: list[threading.Thread], served: Served, seconds: float) -> None:
    for one in work:
        one.start()
    time.sleep(seconds)
    served.kill()
    for one in work:
        one.join()


def _thread(act: object, served: Served, *arguments: object) -> threading.Thread:
    """Calls with a client of its own until the server is gone."""

    def run() -> None:
        with served.client() as client:
            try:
                act(client, *arguments)  # type: ignore[operator]
            except (httpx.HTTPError, ValueError):
                return  # it was killed meanwhile

    return threading.Thread(target=run)


def _speaking(served: Served, promises: Promises, rng: random.Random, moment: float, world: World) -> None:
    long = SPOKEN | {"input": "One two three four five six. " * 8, "stream": True}
    threads = [_thread(lambda client: client.post(SPEECH, json=long), served) for _ in range(3)]
    _busily(threads, served, moment * MAX_SECONDS)


def _keeping_takes(served: Served, promises: Promises, rng: random.Random, moment: float, world: World) -> None:
    def many(client: httpx.Client) -> None:
        for seed in range(2, 30):
            promises.make_take(client, seed)

    _busily([_thread(many, served)], served, moment * MAX_SECONDS)


def _saving_voices(served: Served, promises: Promises, rng: random.Random, moment: float, world: World) -> None:
    content = world.recording.read_bytes()

    def many(client: httpx.Client) -> None:
        for number in range(30):
            promises.make_voice(client, f"Voice {number}", content)

    _busily([_thread(many, served)], served, moment * MAX_SECONDS)


def _importing(served: Served, promises: Promises, rng: random.Random, moment: float, world: World) -> None:
    """A command of its own, in the home that is served."""
    file = world.once("to-import", lambda folder: Voices(Home(world.home)).export("Tuned", folder))
    command = [sys.executable, "app.py", "voices", "import", str(file), "--name", "Imported"]
    environment = as_started() | {"ENCORE_HOME": str(served.home)}
    with subprocess.Popen(
        command, cwd=PROJECT_FOLDER, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as importing:
        try:
            importing.wait(moment * IMPORT_SECONDS)
        except subprocess.TimeoutExpired:
            importing.kill()
    if importing.returncode == 0:
        promises.voices[Voices(Home(served.home)).get("Imported").id] = "Imported"


PHASES = (_speaking, _keeping_takes, _saving_voices, _importing)

ATTACK = Attack(name="killed servers", weight=1.5, attack=step)
