"""What must hold on machines unlike this one: without optional programs, on lesser processors, on the newest Python,
and in another user's folder.

    python -m tests.portability [--python PATH] [--every N] [SECTION ...]

Each section ends in one line: passed, failed, or skipped with the reason. The exit status is 0 unless one failed.
Which tests a section runs is found in the tests themselves, so that new and moved ones are among them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from tests.run_all import LARGE, TALLY_VARIABLE, describe, describe_tally

PROJECT = Path(__file__).resolve().parents[1]
PYTEST = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", f"not ({LARGE})", "-p", "no:cacheprovider"]

# All that answers to what tests/programs.py lists, under whatever name.
HIDDEN = re.compile(
    r"(flite|espeak|pico2wave|RHVoice|chromium|google-chrome|clang|([\w-]*-)?(c\+\+|g\+\+|gcc)|cc$|c89|c99|ninja)"
)
ABOUT_PROGRAMS = re.compile(r"needs_program|require_program|\bflite\b|espeak|g\+\+")

ABOUT_NUMBERS = re.compile(r"^(import torch|from torch|from tests\.golden)", re.MULTILINE)
# Each library has its own way to be told that the processor can do less. Where it cannot do as much, or is of another
# kind, they take no notice.
PROCESSORS = {
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "the least": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
}

NEWEST_PYTHON = "python3.13"  # the first that the Makefile looks for

STARTS_PROCESSES = re.compile(r"\b(subprocess\.|start_app\()")
NOBODY = 65534


class Skipped(Exception):
    """A section that cannot run here, and why."""


class Failed(Exception):
    """A section that found something."""


def main(arguments: list[str]) -> int:
    """Run the sections that are named, or all; returns 0 unless one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.portability", description=__doc__.split("\n\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all if none is named")
    parser.add_argument("--python", help=f"the interpreter for the section python instead of {NEWEST_PYTHON}")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run one of N test files, for a quick look")
    options = parser.parse_args(arguments)
    if unknown := set(options.sections) - SECTIONS.keys():
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    lines = []
    outcomes: Counter[str] = Counter()
    for name in options.sections or SECTIONS:
        print(f"\n=== {name}", flush=True)
        try:
            outcome, details = "passed", SECTIONS[name](options)
        except Skipped as reason:
            outcome, details = "skipped", str(reason)
        except Failed as reason:
            outcome, details = "failed", str(reason)
        outcomes[outcome] += 1
        lines.append(f"{name}: {outcome}, {details}")
    print("\n=== portability", *lines, describe(outcomes), sep="\n", flush=True)
    return int(outcomes["failed"] > 0)


def without_programs(options: argparse.Namespace) -> str:
    """Tests of what needs optional programs, with all of these hidden: they skip, and the others pass."""
    with tempfile.TemporaryDirectory(prefix="encore-path-") as folder:
        for directory in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
            for program in Path(directory).glob("*"):
                link = Path(folder, program.name)
                if not HIDDEN.match(program.name) and not link.is_symlink():
                    link.symlink_to(program.absolute())
        tally = run_tests(tests_about(ABOUT_PROGRAMS, indirectly=True)[:: options.every], {"PATH": folder})
    if not any("not installed: flite" in reason for reason in tally["skipped"]):
        raise Failed("flite was not hidden, or no test asks for it")
    return describe_tally(tally)


def on_lesser_processors(options: argparse.Namespace) -> str:
    """Tests of the network's and of training's numbers, with libraries that make do with a lesser processor."""
    tests = [
        test
        for test in sorted(
            {*tests_about(ABOUT_NUMBERS, indirectly=False)} - {*tests_about(STARTS_PROCESSES, indirectly=False)}
        )
        if test.relative_to(PROJECT / "tests").parts[0] in ("training", "golden")
    ][:: options.every]
    lines, failed = [], False
    for name, less in PROCESSORS.items():
        if name == "AVX2" and not torch.cpu._is_avx512_supported():
            lines.append(f"{name}: that is what this processor has, or less")
            continue
        try:
            lines.append(f"{name}: {describe_tally(run_tests(tests, less))}")
        except Failed as reason:
            lines.append(f"{name}: {reason}")
            failed = True
    if failed:
        raise Failed("; ".join(lines))
    return "; ".join(lines)


def on_newest_python(options: argparse.Namespace) -> str:
    """A checkout that `make` sets up with the newest Python, and the tests in it."""
    python = options.python or shutil.which(NEWEST_PYTHON)
    if python is None or subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True).returncode:
        raise Skipped(f"{python or NEWEST_PYTHON} does not run here, or cannot create an environment")
    if options.python is None and sys.version_info[:2] == tuple(map(int, NEWEST_PYTHON[6:].split("."))):
        raise Skipped(f"this is {NEWEST_PYTHON}")
    with tempfile.TemporaryDirectory(prefix="encore-python-") as folder:
        checkout = copy_checkout(Path(folder, "encore"))
        # Under the name that make looks for first.
        (links := Path(folder, "bin")).mkdir()
        (links / NEWEST_PYTHON).write_text(f'#!/bin/sh\nexec "{Path(python).absolute()}" "$@"\n')
        (links / NEWEST_PYTHON).chmod(0o755)
        path = os.pathsep.join((str(links), os.environ["PATH"]))
        made = subprocess.run(["make", ".venv/.dev-installed"], cwd=checkout, env=os.environ | {"PATH": path})
        if made.returncode:
            raise Failed(f"make could not set up an environment with {python}")
        tests = sorted((checkout / "tests").rglob("test_*.py"))[:: options.every]
        tally = run_tests(tests, {}, python=checkout / ".venv" / "bin" / "python", checkout=checkout)
    return describe_tally(tally)


def in_a_foreign_folder(options: argparse.Namespace) -> str:
    """A checkout in a folder with spaces, of a user who is not root and whose home cannot be written."""
    with tempfile.TemporaryDirectory(prefix="encore portability ") as name:
        folder = Path(name)
        checkout = copy_checkout(folder / "a checkout with spaces")
        (home := folder / "home").mkdir()
        (temporary := folder / "tmp").mkdir()
        as_user = _become_nobody(temporary, checkout) if os.geteuid() == 0 else []
        home.chmod(0o555)
        changed = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
        changed |= {"ENCORE_HOME": str(temporary / "encore")}
        for command in (["app.py", "--help"], ["app.py", "doctor"]):
            done = subprocess.run(
                [*as_user, sys.executable, *command],
                cwd=checkout,
                env=os.environ | changed,
                capture_output=True,
                text=True,
            )
            print(done.stdout + done.stderr, flush=True)
            if done.returncode or "Traceback" in done.stderr:
                raise Failed(f"{' '.join(command)} ended with status {done.returncode}")
        about = tests_about(STARTS_PROCESSES, indirectly=False)[:: options.every]
        tests = [checkout / test.relative_to(PROJECT) for test in about]
        return describe_tally(run_tests(tests, changed, as_user=as_user, checkout=checkout))


def _become_nobody(*folders: Path) -> list[str]:
    """What to put before a command so that another user than root runs it, to whom these folders belong."""
    who = f"{NOBODY}"
    # In a user namespace files of root stay readable, such as an interpreter below /root; many containers forbid them.
    for command in (
        ["unshare", "--user", f"--map-user={who}", f"--map-group={who}"],
        ["setpriv", f"--reuid={who}", f"--regid={who}", "--clear-groups", "--bounding-set=-all"],
    ):
        # A shell starts the interpreter, so that it is this user's right to do so that is tried.
        tried = [*command, "sh", "-c", '"$0" -c "import torch"', sys.executable]
        if shutil.which(command[0]) and not subprocess.run(tried, capture_output=True, check=False).returncode:
            break
    else:
        raise Skipped(f"neither unshare nor setpriv makes root another user who can run {sys.executable}")
    if command[0] == "setpriv":
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        folders[0].parent.chmod(0o755)
    return command


def run_tests(
    tests: list[Path],
    changed: Mapping[str, str],
    *,
    as_user: list[str] | None = None,
    python: Path = Path(sys.executable),
    checkout: Path = PROJECT,
) -> dict[str, dict[str, int]]:
    """Run pytest on test files of a checkout; returns its tally."""
    with tempfile.TemporaryDirectory(dir=changed.get("TMPDIR")) as folder:
        Path(folder).chmod(0o777)
        tally = Path(folder, "tally.json")
        command = [*(as_user or []), str(python), *PYTEST, *(str(test.relative_to(checkout)) for test in tests)]
        status = subprocess.run(
            command, cwd=checkout, env=os.environ | changed | {TALLY_VARIABLE: str(tally)}, check=False
        ).returncode
        if not tally.is_file():
            raise Failed(f"pytest ended with status {status}")
        found: dict[str, dict[str, int]] = json.loads(tally.read_text(encoding="utf-8"))
    if status:
        raise Failed(describe_tally(found))
    return found


def tests_about(subject: re.Pattern[str], *, indirectly: bool) -> list[Path]:
    """Test files in which this occurs; `indirectly`: or in what they import, or the conftest files of their folders."""
    return [
        test
        for test in sorted((PROJECT / "tests").rglob("test_*.py"))
        if any(
            subject.search(path.read_text(encoding="utf-8"))
            for path in (_read_by(test, set()) if indirectly else [test])
        )
    ]


def _read_by(path: Path, seen: set[Path]) -> Iterator[Path]:
    if path in seen or not path.is_file():
        return
    seen.add(path)
    yield path
    text = path.read_text(encoding="utf-8")
    for module in re.findall(r"^from (tests\.[\w.]+) import", text, re.MULTILINE):
        yield from _read_by(PROJECT.joinpath(*module.split(".")).with_suffix(".py"), seen)
    # The one of all tests says nothing about any of them.
    if path.parent != PROJECT / "tests":
        for folder in (path.parent, *path.parent.parents):
            if folder == PROJECT / "tests":
                break
            yield from _read_by(folder / "conftest.py", seen)


def copy_checkout(destination: Path) -> Path:
    """What git knows of, and what it would take in, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (PROJECT / name).is_file():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, destination / name)
    return destination


SECTIONS: dict[str, Callable[[argparse.Namespace], str]] = {
    "programs": without_programs,
    "processors": on_lesser_processors,
    "python": on_newest_python,
    "checkout": in_a_foreign_folder,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
