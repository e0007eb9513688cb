"""A home on a disk that is full, or cannot be written, at random moments: said, and nothing that was stored is gone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from backend.errors import EncoreError
from backend.store.artifacts import Artifacts
from backend.store.copies import DatabaseCopies
from backend.store.home import Home
from backend.store.leftovers import WORKING_FOLDERS, sweep_leftovers
from backend.takes.keeper import TakeKeeper
from backend.takes.takes import Takes
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from tests.backend.audio.small_disk import run_on_small_disk
from tests.backend.takes.facts import FACTS
from tests.faults.attack import Attack, LeftOut, Outcome, Result, last_of
from tests.faults.world import World

NUM_ACTIONS = 14
SIZE = "12m"
DONE = "all was tried"
MAX_ROOM = 300_000
"""Bytes that are left on a disk that is called full."""

PROGRAM = """
import random, sys
from pathlib import Path
from tests.faults.full_disks import live_through
live_through(Path(sys.argv[1]), random.Random({seed!r}), Path({exported!r}), Path({recording!r}))
"""


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """One home on a disk of its own, in a process that sees it."""
    exported = world.once("to-import", lambda folder: Voices(Home(world.home)).export("Anna", folder))
    program = PROGRAM.format(seed=str(rng.random()), exported=str(exported), recording=str(world.recording))
    with world.scratch() as folder:
        try:
            said = run_on_small_disk(folder / "disk", program, size=SIZE)
        except pytest.skip.Exception as reason:
            raise LeftOut(str(reason)) from reason
    lines = [json.loads(line) for line in said.splitlines() if line.startswith('{"result"')]
    if DONE not in said:
        yield Outcome(result=Result.WRONG, what=f"it ended before its end: {said[-600:]!r}")
    for line in lines:
        yield Outcome(result=Result(line["result"]), what=line["what"])


class Disk:
    """A file system of this process's own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._filler = folder, folder / "filler"
        self.state = "has room"

    def change(self, rng: random.Random) -> None:
        """Fill it up to a random rest, make it read-only, or make room again."""
        self.make_room()
        self.state = rng.choice(("has room", "is full", "is full", "cannot be written"))
        if self.state == "is full":
            room = rng.choice((0, 0, rng.randrange(MAX_ROOM)))
            with self._filler.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    file.truncate(max(0, file.tell() - room))
        elif self.state == "cannot be written":
            self._remount("ro")

    def make_room(self) -> None:
        """As it was."""
        self._remount("rw")
        self._filler.unlink(missing_ok=True)

    def _remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self._folder)], check=True)


def live_through(folder: Path, rng: random.Random, exported: Path, recording: Path) -> None:
    """Store things while the disk changes, and print a line of JSON on stderr for each outcome."""
    disk, home = Disk(folder), Home(folder / "home")
    voices, takes, artifacts = Voices(home), Takes(home), Artifacts(home.folder)
    kept: dict[str, Callable[[], bool]] = {}

    def voice(number: int) -> None:
        made = voices.create_zero_shot(f"Voice {number}", recording, consent=Consent.give("Ann"), model="tiny")
        kept[f"voice {number}"] = lambda: voices.get(made.name).reference.stat().st_size > 0

    def received(number: int) -> None:
        made = voices.import_(exported, name=f"Imported {number}")
        kept[f"import {number}"] = lambda: voices.get(made.name).id == made.id

    def take(number: int) -> None:
        with TakeKeeper(takes, 24_000) as keeper:
            for _ in range(3):
                keeper.write(np.full(24_000, number / 100, np.float32))
            made = keeper.keep(FACTS, "me")
        if made is None:
            raise EncoreError(keeper.problem or "")
        content = made.path.read_bytes()
        kept[f"take {number}"] = lambda: takes.get(made.id).path.read_bytes() == content

    def artifact(number: int) -> None:
        content = bytes([number]) * 50_000
        name = artifacts.put(content, ".wav")
        kept[f"clip {number}"] = lambda: artifacts.read(name, ".wav") == content

    def copy(number: int) -> None:
        made = DatabaseCopies(home.folder).make()
        kept["the newest copy"] = lambda: made.is_file() or bool(DatabaseCopies(home.folder).list())

    for number in range(NUM_ACTIONS):
        disk.change(rng)
        act = rng.choice((voice, received, take, take, artifact, copy))
        what = f"{act.__name__} {number} on a disk that {disk.state}"
        try:
            act(number)
        except EncoreError as error:
            is_sentence = "\n" not in str(error) and bool(str(error))
            _say(Result.REFUSED if is_sentence else Result.WRONG, what if is_sentence else f"{what}: {error!r}")
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            _say(Result.WRONG, f"{what}: {last_of(error)}")
        else:
            _say(Result.RECOVERED, what)
        disk.make_room()
        gone = [name for name, is_there in kept.items() if not is_there()]
        if gone:
            _say(Result.LOST, f"{what}: {gone}")
    sweep_leftovers(home.folder)
    known = {voice.folder for voice in voices.list()}
    left = [str(path) for name in WORKING_FOLDERS for path in (home.folder / name).glob("*")]
    left += [str(path) for path in (home.folder / "voices").glob("*") if path.is_dir() and path not in known]
    left += [str(path) for path in home.folder.rglob("*.partial")]
    if left:
        _say(Result.LEFT_BEHIND, f"{left[:4]}")
    print(DONE, file=sys.stderr)


def _say(result: Result, what: str) -> None:
    print(json.dumps({"result": result, "what": what}), file=sys.stderr)


ATTACK = Attack(name="full and read-only disks", weight=0.7, attack=step)
