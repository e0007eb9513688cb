"""Starts a studio and an API on one home, uses them until the time is over, and looks at their memory every minute."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx

from backend.runs.process.supervisor_process import end_owner
from backend.runs.runs import Runs
from backend.runs.storage.run_folder import RunFolder
from backend.settings import Settings
from backend.store.home import Home
from backend.studio import Studio
from backend.voices.registry import Voices
from tests.backend.runs.small_dataset import write_small_dataset
from tests.faults.attack import last_of
from tests.faults.world import World, start_server
from tests.golden import GOLDEN_CHECKPOINT
from tests.soak.deeds import API_DEEDS, STUDIO_DEEDS, WORK_DEEDS, Deed, Used
from tests.soak.growth import Sample, is_bounded, sample_of, table
from tests.ui.app_process import start_app
from ui.layout import build_page

MAX_SAMPLE_SECONDS = 60.0
MIN_SAMPLES = 8
"""Also of a soak of a few minutes."""
NUM_API_CLIENTS = 2
MAX_SHOWN_FAULTS = 5


class Users:
    """Threads that do one deed after the other, until they are told to stop."""

    def __init__(self, seed: int, used: Used) -> None:
        self._seed, self._used = seed, used
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def add(self, name: str, deeds: Mapping[str, Deed], pause_seconds: float) -> None:
        """Begin with one more of them."""
        thread = threading.Thread(target=self._use, args=(name, deeds, pause_seconds), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Wait until each has done what it is at."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def summary(self) -> str:
        """How often each deed was done, and went wrong."""
        return ", ".join(f"{name} {self.done[name]} ({self.faults[name]} failed)" for name in sorted(self.done))

    def _use(self, name: str, deeds: Mapping[str, Deed], pause_seconds: float) -> None:
        rng = random.Random(f"{self._seed} {name}")
        while not self._stopped.wait(pause_seconds * rng.random()):
            chosen = rng.choice(list(deeds))
            fault = ""
            try:
                deeds[chosen](rng, self._used)
            except Exception as error:  # noqa: BLE001 - people go on, and this one is printed
                fault = last_of(error)
            with self._lock:
                self.done[chosen] += 1
                self.faults[chosen] += bool(fault)
                if fault and self.faults[chosen] <= MAX_SHOWN_FAULTS:
                    print(f"{chosen}: {fault}", flush=True)


def main(arguments: list[str]) -> int:
    """Soak; returns 1 if a process has grown by more than it may, or has ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    parser.add_argument("--without-ray", action="store_true", help="no fine-tunes, which start clusters")
    options = parser.parse_args(arguments)
    os.environ.update(HF_HUB_OFFLINE="1", GRADIO_ANALYTICS_ENABLED="False", OMP_NUM_THREADS="1")
    for name in [name for name in os.environ if name.startswith("ENCORE_") or name == "RAY_ADDRESS"]:
        del os.environ[name]
    at = datetime.now(UTC)
    with _in_use(with_ray=not options.without_ray) as (used, pids):
        users = Users(options.seed, used)
        for number in range(NUM_API_CLIENTS):
            users.add(f"API client {number}", API_DEEDS, 1.0)
        users.add("visitor", STUDIO_DEEDS, 2.0)
        work = {name: deed for name, deed in WORK_DEEDS.items() if used.with_ray or name != "fine-tune"}
        users.add("worker", work, 60.0)
        samples = watch(used, pids, 60 * options.minutes)
        users.stop()
    head = f"{at:%Y-%m-%d}, {options.minutes:g} minutes, seed {options.seed}: {users.summary()}"
    text = f"{head}\n\n{table(samples)}"
    print("", text, sep="\n", flush=True)
    if options.output is not None:
        options.output.write_text(f"{text}\n", encoding="utf-8")
    return 0 if is_bounded(samples) else 1


def watch(used: Used, pids: Mapping[str, int], seconds: float) -> dict[str, list[Sample]]:
    """Look at the processes until the time is over, each as often as the others. Raises if one of them has ended."""
    began = time.monotonic()
    every = min(MAX_SAMPLE_SECONDS, seconds / MIN_SAMPLES)
    samples: dict[str, list[Sample]] = {name: [] for name in pids}
    while (passed := time.monotonic() - began) < seconds:
        time.sleep(min(every, seconds - passed))
        minute = (time.monotonic() - began) / 60
        metrics = httpx.get(f"{used.api}/metrics", timeout=MAX_SAMPLE_SECONDS).raise_for_status().text
        for name, pid in pids.items():
            samples[name].append(sample_of(pid, minute, metrics if name == "API" else ""))
        print(*(f"{name} {every_one[-1].resident / 1e6:.0f} MB" for name, every_one in samples.items()), flush=True)
    return samples


@contextmanager
def _in_use(*, with_ray: bool) -> Iterator[tuple[Used, dict[str, int]]]:
    """A studio and an API of one home, in a folder that is removed at the end."""
    with ExitStack() as stack:
        # Names of sockets have to be short.
        folder = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp" if os.path.isdir("/tmp") else None))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        world = World(folder / "world")
        os.environ["RAY_TMPDIR"] = str(folder)
        home = shutil.copytree(world.home, folder / "home")
        stack.callback(_end_runs, home)
        write_small_dataset(home / "datasets" / "mine")
        voice_file = Voices(Home(home)).export("Anna", folder)
        api = stack.enter_context(start_server(home, locked=False))
        studio = stack.enter_context(start_app(home, model=str(GOLDEN_CHECKPOINT), DEVICE="cpu"))
        # Never served: from it, visitors know how the page's events are called.
        settings = Settings(home=folder / "layout")
        blocks = build_page(Studio(settings), settings, folder)
        used = Used(
            api=api.address,
            page=studio.address.rstrip("/"),
            blocks=blocks,
            home=home,
            recording=world.recording,
            voice_file=voice_file,
            with_ray=with_ray,
        )
        httpx.get(f"{used.api}/healthz", timeout=MAX_SAMPLE_SECONDS).raise_for_status()
        yield used, {"API": api.process.pid, "studio": studio.process.pid}
        ended = [f"{one.process.args} ended with {one.process.poll()}" for one in (api, studio) if one.process.poll()]
        assert not ended, f"{ended}: {api.log.read_text()[-1500:]} {studio.log.read_text()[-1500:]}"


def _end_runs(home: Path) -> None:
    """What was begun in the last minutes: its folder is about to go."""
    for run in Runs(Home(home)).list():
        end_owner(run, RunFolder.of(home, run.id))
