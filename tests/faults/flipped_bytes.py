"""Bytes that a failing disk changes: said, never used, and what was whole before comes back."""

from __future__ import annotations

import math
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from backend.doctor.verify import Condition, verify
from backend.store.copies import DatabaseCopies
from backend.store.home import Home
from backend.takes.takes import Takes
from backend.voices.registry import Voices
from tests.backend.runs.small_dataset import write_small_dataset
from tests.faults.attack import Attack, Outcome, Result, attempt, left_behind
from tests.faults.damage import flip_in_file
from tests.faults.training import SAME_EVERYWHERE, job_in, train, trained
from tests.faults.world import World
from training.model.checkpoint.hashes import write_hashes
from training.run_checkpoints import list_checkpoints

PER_STEP = 3
NUM_DATABASES = 3


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """A checkpoint that a run goes on from, a few databases, and folders that the doctor reads."""
    yield from _checkpoint(rng, world)
    for _ in range(NUM_DATABASES):
        yield from _database(rng, world)
    for _ in range(PER_STEP):
        yield _folder(rng, world)
    yield from left_behind("flipped bytes", world.left_in_temporary())


def _checkpoint(rng: random.Random, world: World) -> Iterator[Outcome]:
    reports = trained(world)
    with world.scratch() as folder:
        shutil.copytree(world.folder / "trained", folder / "copy")
        job = job_in(folder / "copy")
        newest = list_checkpoints(job.output)[-1]
        path = rng.choice(sorted(path for path in newest.folder.rglob("*") if path.is_file() and path.stat().st_size))
        what = f"the newest checkpoint, {flip_in_file(path, rng)}"

        def resume() -> str:
            context = train(job)
            again = [report["step"] for report in context.reports]
            if again != [reports[-1]["step"]]:
                return f"steps {again} were done again"
            if not any("is damaged and is ignored" in said for said in context.told):
                return f"it was not said: {context.told}"
            for name in SAME_EVERYWHERE:
                if not math.isclose(context.reports[-1][name], reports[-1][name], rel_tol=1e-6):
                    return f"{name} is {context.reports[-1][name]} and was {reports[-1][name]}"
            return ""

        yield attempt(what, resume, world)
        checkpoints = sorted(path.name for path in newest.folder.parent.iterdir())
        yield from left_behind(what, [name for name in checkpoints if not name.startswith("step-") or "." in name])


def _database(rng: random.Random, world: World) -> Iterator[Outcome]:
    with world.scratch() as folder:
        home = Path(shutil.copytree(world.home, folder / "home"))
        names = [voice.name for voice in Voices(Home(home)).list()]
        copies = DatabaseCopies(home)
        copies.make()
        path = home / "encore.sqlite"
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if rng.random() < 0.2:
            path.write_bytes(
                rng.choice((b"", b"no database", path.read_bytes()[: rng.randrange(1, path.stat().st_size)]))
            )
            what = f"a database of {path.stat().st_size} bytes"
        else:
            what = ", ".join(flip_in_file(path, rng) for _ in range(rng.choice((1, 1, 5))))

        def open_it() -> None:
            copies.check()
            # SQLite has no hashes: a text may read another way. What there is must be listed all the same.
            Voices(Home(home)).list()
            Takes(Home(home)).list()

        yield _own(attempt(what, open_it, world), home)

        def restore() -> str:
            copies.restore()
            return "" if [voice.name for voice in Voices(Home(home)).list()] == names else "voices are missing"

        outcome = attempt(f"{what}, restored", restore, world)
        is_lost = outcome.result is Result.WRONG or outcome.result is Result.REFUSED
        yield Outcome(result=Result.LOST, what=outcome.what) if is_lost else outcome


def _own(outcome: Outcome, home: Path) -> Outcome:
    """The owner of a home is told where its database is."""
    is_path = outcome.result is Result.WRONG and "a path of the server in" in outcome.what and str(home) in outcome.what
    return Outcome(result=Result.REFUSED, what=outcome.what) if is_path else outcome


def _folder(rng: random.Random, world: World) -> Outcome:
    """Everything else that is kept: named by `doctor --verify`, and nothing but it."""
    with world.scratch() as folder:
        home = Path(shutil.copytree(world.home, folder / "home"))
        shutil.copytree(world.once("dataset", _make_dataset), home / "datasets" / "mine")
        shutil.copytree(world.folder / "trained" / "run", home / "runs" / ("0" * 32))
        kept = [*home.glob("voices/*/"), *home.glob("datasets/*/"), *home.glob("runs/*/checkpoints/step-*/")]
        target = rng.choice(sorted(one for one in kept if one.is_dir()))
        path = rng.choice(sorted(path for path in target.rglob("*") if path.is_file() and path.stat().st_size))
        what = f"{target.parent.name}, {flip_in_file(path, rng)}"
        found = [one for one in verify(home, lambda what, num_bytes: None) if one.condition is Condition.DAMAGED]
        if len(found) != 1 or (found[0].name not in str(target) and target.name not in found[0].name):
            return Outcome(result=Result.WRONG, what=f"{what}: {found} is called damaged")
        return Outcome(result=Result.REFUSED, what=what)


def _make_dataset(folder: Path) -> Path:
    made = write_small_dataset(folder / "mine", num_clips=3, num_held_out=1)
    write_hashes(made)
    return made


ATTACK = Attack(name="flipped bytes", weight=1.0, attack=step)
