"""A clock that is set: no run loses its owner, no living process what it works on, and copies are made all the same.

The clock of a machine cannot be set for some of its processes alone: what they read of it is changed instead, the time
of the boot for another app, and the times of files.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from backend.runs.storage.run_folder import RunFolder
from backend.runs.storage.run_table import RunTable
from backend.runs.storage.states import RunState
from backend.store.copies import DatabaseCopies
from backend.store.home import Home
from backend.store.leftovers import sweep_leftovers
from backend.store.lock import is_held
from backend.takes.takes import Takes
from tests.backend.runs.process.test_supervisor_process import owner_of, seen_after_a_step
from tests.backend.runs.storage.test_records import record
from tests.faults.attack import Attack, LeftOut, Outcome, attempt
from tests.faults.world import World

STEPS = (-10 * 365 * 86_400, -86_400, -3600, -1, 1, 3600, 86_400, 10 * 365 * 86_400)


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """One step of the clock, as a second app, a sweep and a copy see it."""
    seconds = rng.choice(STEPS)
    with world.scratch() as folder:
        home = Home(folder / "home")
        run = RunFolder.of(home.folder, "one")
        run.path.mkdir(parents=True)
        with owner_of(run) as process_id:
            birth = psutil.Process(process_id).create_time()
            rows = RunTable(home.database)
            rows.add(record(state=RunState.RUNNING, process_id=process_id, process_started_at=birth))

            def second_app() -> str:
                seen = seen_after_a_step(home.folder, seconds)
                return "" if seen == ("True", "[]", "running") and is_held(run.lock) else f"the run is {seen}"

            try:
                yield attempt(f"a second app, {seconds} s", second_app, world)
            except (pytest.skip.Exception, subprocess.CalledProcessError) as reason:
                raise LeftOut(str(reason)) from reason

        def sweep() -> str:
            with Takes(home).incoming() as take:
                take.write_bytes(b"half")
                os.utime(take, (time.time() + seconds,) * 2)
                sweep_leftovers(home.folder)
                return "" if take.is_file() else "a living process lost its take"

        yield attempt(f"a sweep, {seconds} s", sweep, world)

        def copy() -> str:
            copies = DatabaseCopies(home.folder)
            made = copies.make()
            made.rename(made.with_name(f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H-%M-%S-%f}.sqlite"))
            copies.make()
            copies.check()
            return "" if len(copies.list()) == 2 else f"there are {len(copies.list())} copies"

        yield attempt(f"a copy, {seconds} s", copy, world)


ATTACK = Attack(name="clock steps", weight=0.5, attack=step)
