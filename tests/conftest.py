"""What every test may rely on: no network, one thread, fixed seeds, a home of its own, tiers that skip aloud."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.programs import why_missing
from tests.run_all import TALLY_VARIABLE

# Here and not in a hook: where folders below this one are named on the command line, their conftest files are read,
# and import what asks the Hugging Face hub, before any hook of this file is called.
os.environ["HF_HUB_OFFLINE"] = "1"

EARLIER_ERROR_LENGTH = 300

# Ray and DeepSpeed talk to their own workers over this machine's public address, not only over loopback.
TIERS_WITH_THEIR_OWN_NETWORK = ("ray", "deepspeed")


def _missing_package(name: str) -> str | None:
    return None if importlib.util.find_spec(name) else f"the package {name} is not installed"


def _missing_for_browser() -> str | None:
    return why_missing("chromium") or _missing_package("playwright")


def _missing_for_gpu() -> str | None:
    import torch  # noqa: PLC0415 - takes seconds, and only runs that hold gpu tests need it here

    return None if torch.cuda.is_available() else "torch finds no CUDA device"


def _missing_for_weights() -> str | None:
    folder = os.environ.get("ENCORE_TEST_WEIGHTS")
    if not folder:
        return "ENCORE_TEST_WEIGHTS does not name a folder with Qwen3-TTS weights"
    return None if Path(folder).is_dir() else f"ENCORE_TEST_WEIGHTS={folder} is no folder"


# Marker -> what this machine lacks to run it, or None.
TIERS: dict[str, Callable[[], str | None]] = {
    "ray": lambda: _missing_package("ray"),
    "browser": _missing_for_browser,
    "deepspeed": lambda: _missing_package("deepspeed"),
    "gpu": _missing_for_gpu,
    "weights": _missing_for_weights,
}


# Each takes half a minute or more. Begun last, the longest would keep one of two workers waiting for the other.
LONG_FILES = {
    Path(__file__).parent / f"{path}.py"
    for path in (
        "backend/commands/test_serve",
        "backend/dataset/test_long_recording",
        "backend/runs/process/test_watchdog",
        "backend/web/test_connections",
        "benchmarks/gpu/test_gpu_benchmark",
        "faults/test_faults",
        "training/pretrain/corpus/test_corpus",
        "training/pretrain/test_embedded_checkpoint",
        "training/test_lora_strategies",
        "training/test_strategies",
        "training/test_worker",
        "ui/test_studio_page",
        "ui/test_work_page",
    )
}

# What was told to end may take this long where the machine is busy.
LEFT_RUNNING_SECONDS = 60.0


class NetworkGuard:
    """An audit hook that keeps Python sockets on this machine and remembers who tried to leave.

    Remembering matters: libraries swallow connection errors and carry on from a cache, and such a test
    would pass here for the wrong reason. Code that opens sockets outside Python is out of its reach;
    for the one such library in use, Hugging Face's downloader, HF_HUB_OFFLINE is set as well.
    """

    def __init__(self) -> None:
        self.blocking = True
        self.attempts: list[str] = []
        self._own_names = {"localhost", socket.gethostname()}

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.blocking or not event.startswith("socket."):
            return
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = args[1]
        elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            address = (args[0],)
        else:
            return
        # Anything but a tuple is a Unix socket's path, or None on a socket connected before.
        if isinstance(address, tuple) and not self._is_here(address[0]):
            self.attempts.append(f"{event} {address}")
            raise PermissionError(f"Tests stay offline, but {event} was called with {address}.")

    def _is_here(self, host: str | bytes | int | None) -> bool:
        if not isinstance(host, str | bytes):
            return True  # None is the wildcard address; a number belongs to a local socket family
        name = host.decode() if isinstance(host, bytes) else host
        try:
            ip = ipaddress.ip_address(name)
        except ValueError:
            return not name or name in self._own_names
        return ip.is_loopback or ip.is_unspecified


GUARD = pytest.StashKey[NetworkGuard]()
REASONS = pytest.StashKey[dict[str, str | None]]()


def pytest_configure(config: pytest.Config) -> None:
    """Set what libraries read while they are imported, which is before any fixture runs."""
    session_home = tempfile.TemporaryDirectory(prefix="encore-tests-")
    config.add_cleanup(session_home.cleanup)
    os.environ.update(
        HF_HOME=str(Path(session_home.name, "huggingface")),  # or a model in the user's cache would be found
        ENCORE_HOME=str(Path(session_home.name, "encore")),  # for fixtures that outlive one test
        GRADIO_ANALYTICS_ENABLED="False",
        OMP_NUM_THREADS="1",  # torch's thread count: sums in a fixed order, and small ops run faster alone
    )
    guard = NetworkGuard()
    config.stash[GUARD] = guard
    config.add_cleanup(lambda: setattr(guard, "blocking", False))  # audit hooks cannot be removed
    sys.addaudithook(guard)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests whose tier cannot run here, or whose programs are missing, with the reason; the longest first."""
    items.sort(key=lambda item: item.path not in LONG_FILES)
    reasons = {tier: missing() for tier, missing in TIERS.items() if any(map(_in_tier(tier), items))}
    config.stash[REASONS] = reasons
    for tier, reason in reasons.items():
        if reason is not None:
            for item in filter(_in_tier(tier), items):
                item.add_marker(pytest.mark.skip(reason=f"{tier}: {reason}"))
    for item in items:
        names = dict.fromkeys(name for marker in item.iter_markers("needs_program") for name in marker.args)
        if reason := why_missing(*names):
            item.add_marker(pytest.mark.skip(reason=reason))


def _in_tier(tier: str) -> Callable[[pytest.Item], bool]:
    return lambda item: item.get_closest_marker(tier) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Decide about network and threads before the first fixture of the test, of whatever scope, is made."""
    item.config.stash[GUARD].blocking = not any(_in_tier(tier)(item) for tier in TIERS_WITH_THEIR_OWN_NETWORK)
    # Where a conftest below has imported torch before OMP_NUM_THREADS was set; here, so that fixtures of modules and
    # of the session have it too.
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which tiers ran and which could not, so that a green run does not promise too much."""
    if tally := os.environ.get(TALLY_VARIABLE):
        Path(tally).write_text(json.dumps(_tally(terminalreporter)), encoding="utf-8")
    reasons = config.stash.get(REASONS, {})
    num_by_outcome = Counter(
        (tier, outcome)
        for outcome in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.getreports(outcome)
        for tier in reasons
        if tier in getattr(report, "keywords", ())  # a module that cannot be imported has none
    )
    for tier, reason in reasons.items():
        num_skipped = num_by_outcome[tier, "skipped"]
        if reason is not None and num_skipped:
            terminalreporter.write_line(f"tier {tier}: {num_skipped} skipped, {reason}", yellow=True)
        elif reason is None:
            outcomes = {name: num for (of, name), num in num_by_outcome.items() if of == tier}
            terminalreporter.write_line(f"tier {tier}: " + ", ".join(f"{num} {name}" for name, num in outcomes.items()))


def _tally(terminalreporter: pytest.TerminalReporter) -> dict[str, Any]:
    """What became of the tests, for the summary over several runs (tests/run_all.py)."""
    by_outcome = {name: terminalreporter.getreports(name) for name in ("passed", "failed", "error", "skipped")}
    failed = [*by_outcome["failed"], *by_outcome["error"]]
    skipped = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in by_outcome["skipped"])
    names_failed = {report.nodeid for report in failed}
    tried_again = terminalreporter.getreports("rerun")
    return {
        "counts": {"passed": len(by_outcome["passed"]), "failed": len(failed), "skipped": skipped.total()},
        "failed": [report.nodeid for report in failed],
        "tried_again": sorted({report.nodeid for report in tried_again} - names_failed),
        "earlier_errors": _earlier_errors(tried_again),
        "skipped": dict(skipped),
    }


def _earlier_errors(reports: list[pytest.TestReport]) -> dict[str, list[str]]:
    """The first lines of the errors that had a test tried again: the last trial can fail of what the first has left."""
    errors: dict[str, list[str]] = {}
    for report in reports:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else str(report.longrepr)
        errors.setdefault(report.nodeid, []).append(" ".join(message.split())[:EARLIER_ERROR_LENGTH])
    return errors


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """Fail where a test has left a process behind that does not end soon."""
    yield
    give_up = time.monotonic() + LEFT_RUNNING_SECONDS
    while (left := _living_children()) and time.monotonic() < give_up:
        time.sleep(0.1)
    if left:
        pytest.fail(f"Left running: {'; '.join(left)}", pytrace=False)


def _living_children() -> list[str]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = " ".join(child.cmdline())
            # multiprocessing keeps one to tidy up after this process, and ends it itself.
            if child.status() != psutil.STATUS_ZOMBIE and "multiprocessing.resource_tracker" not in command:
                found.append(f"{child.pid} {command}")
    return found


@pytest.fixture(autouse=True)
def _offline(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fail the test during which something tried to leave this machine, even if the error was swallowed."""
    yield
    attempts = pytestconfig.stash[GUARD].attempts
    if attempts:
        message = "; ".join(attempts)
        attempts.clear()
        pytest.fail(f"Reached for the network: {message}", pytrace=False)


@pytest.fixture(autouse=True)
def _encore_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test an empty ENCORE_HOME."""
    monkeypatch.setenv("ENCORE_HOME", str(tmp_path / "encore-home"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Make a test's random numbers independent of the tests before it."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
