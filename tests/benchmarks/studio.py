"""How long a person waits for the page, how many presses its ways take, and what it costs to be looked at.

    python -m tests.benchmarks.studio --output tests/benchmarks/results/DATE-studio.md

Needs Chromium. Every number is taken from outside: the program as people start it, and the page in a browser.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import Spread
from tests.benchmarks.studio_ways import COUNT_PRESSES, Way, walk_all
from tests.browser.test_studio_tabs import choose_voice, open_tab
from tests.browser.test_work_tabs import prepare_sample
from tests.programs import find_program
from tests.ui.app_process import AppProcess, start_app

PATIENCE_MS = 600_000
MANY_STEPS = 5000
"""Training must not end before the measurement."""

# When the first sound begins, counted from the click: Web Audio is told when to start each chunk.
NOTE_FIRST_SOUND = """
window.firstSound = null;
document.addEventListener("click", (event) => {
  if (event.target.closest("#speak")) { window.clicked = performance.now(); window.firstSound = null; }
}, true);
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (when) {
  const wait = Math.max(0, (when ?? 0) - this.context.currentTime);
  window.firstSound ??= (performance.now() - window.clicked) / 1000 + wait;
  return start.apply(this, arguments);
};
"""


@dataclass
class Measured:
    """Seconds, and shares of one processor core."""

    ready: list[float] = field(default_factory=list)
    usable: list[float] = field(default_factory=list)
    first_sound: list[float] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--starts", type=int, default=3, help="after one that warms the disk up")
    parser.add_argument("--takes", type=int, default=5)
    parser.add_argument("--watch-seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=2, help="of watching and not watching, in turns")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    expect.set_options(timeout=PATIENCE_MS)
    machine, measured = describe_machine("cpu"), Measured()
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        for number in range(options.starts + 1):
            measure_start(browser, Path(folder, f"start-{number}"), options.model, measured, counts=number > 0)
            print("start", number, measured.usable[-1:], file=sys.stderr, flush=True)
        with start_app(Path(folder, "home"), model=options.model) as app:
            page = open_page(browser, app.address)
            measure_first_sound(page, options.takes, measured)
            print("first sound", measured.first_sound, file=sys.stderr, flush=True)
            measure_watching(browser, page, app, options, measured)
        with start_app(Path(folder, "ways"), model=options.model) as app:
            ways = walk_all(lambda: open_page(browser, app.address), Path(folder))
    report = write_report(options, machine, measured, ways)
    print(report)
    if options.output is not None:
        options.output.write_text(report + "\n", encoding="utf-8")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium, started before anything is measured."""
    executable = find_program("chromium")
    with sync_playwright() as playwright:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"]
        browser = playwright.chromium.launch(executable_path=executable, args=arguments)
        yield browser
        browser.close()


def open_page(browser: Browser, address: str) -> Page:
    """A new visitor, who waits until a voice could speak."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(NOTE_FIRST_SOUND)
    page.add_init_script(COUNT_PRESSES)
    page.goto(address)
    expect(page.locator("#speak")).to_be_enabled()
    return page


def measure_start(browser: Browser, home: Path, model: str, measured: Measured, *, counts: bool) -> None:
    """From `python app.py` to its address, and to a page on which Speak can be pressed."""
    began = time.perf_counter()
    with start_app(home, model=model) as app:
        ready = time.perf_counter() - began
        page = open_page(browser, app.address)
        usable = time.perf_counter() - began
        page.context.close()
        app.end()
    if counts:
        measured.ready.append(ready)
        measured.usable.append(usable)


def measure_first_sound(page: Page, num_takes: int, measured: Measured) -> None:
    """From the click on Speak to the first sound; the first take is left out, because it warms up."""
    choose_voice(page, "Owen")
    page.locator("#text textarea").fill("Hello! This is what I sound like.")
    for number in range(1, num_takes + 2):
        page.locator("#speak").click()
        expect(page.locator("#status")).to_contain_text(f"Take {number} is ready")
        if number > 1:
            measured.first_sound.append(page.evaluate("window.firstSound"))


def measure_watching(
    browser: Browser, page: Page, app: AppProcess, options: argparse.Namespace, measured: Measured
) -> None:
    """What the app's process costs with a page that watches a run, and with none."""
    process = psutil.Process(app.process.pid)
    measured.idle.append(core_share(process, options.watch_seconds))
    start_training(page)
    for _ in range(options.rounds):
        measured.watched.append(core_share(process, options.watch_seconds))
        page.context.close()
        measured.alone.append(core_share(process, options.watch_seconds))
        print("watched, alone", measured.watched[-1], measured.alone[-1], file=sys.stderr, flush=True)
        page = open_page(browser, app.address)
        open_tab(page, "Tune")
        expect(page.locator("#run-status")).to_contain_text("Training")
    page.locator("#cancel-run").click()
    expect(page.locator("#run-status")).to_contain_text("Cancelled")


def start_training(page: Page) -> None:
    """A dataset of the sample and a long run on it, as a person starts them."""
    prepare_sample(page)
    page.locator("#to-tune").click()
    expect(page.locator("#plan")).to_contain_text("steps, about")
    page.locator("#tune-voice input, #tune-voice textarea").first.fill("Watched")
    page.locator("#tune-advanced > button").click()
    page.locator("#num-steps input, #num-steps textarea").first.fill(str(MANY_STEPS))
    expect(page.locator("#plan")).to_contain_text(f"{MANY_STEPS} steps, about")
    page.locator("#start-run").click()
    expect(page.locator("#run-engineers > button")).to_be_visible()
    page.locator("#run-engineers > button").click()
    expect(page.locator("#losses svg").first).to_be_visible()


def core_share(process: psutil.Process, seconds: float) -> float:
    """Processor time of a process by time on the clock; threads that work at once count each."""
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - began)


def write_report(options: argparse.Namespace, machine: Sequence[str], measured: Measured, ways: Sequence[Way]) -> str:
    """The report as Markdown."""
    costs = [watched - alone for watched, alone in zip(measured.watched, measured.alone, strict=True)]
    rows = (
        ("`python app.py` to its address", measured.ready, "s", ""),
        ("`python app.py` to a page that can speak", measured.usable, "s", "20"),
        ("click to first sound", measured.first_sound, "s", "1"),
        ("app's process, page open, nothing at work", percent(measured.idle), "% of a core", ""),
        ("app's process while training, page watches", percent(measured.watched), "% of a core", ""),
        ("app's process while training, no page", percent(measured.alone), "% of a core", ""),
        ("what watching costs", percent(costs), "% of a core", "2"),
    )
    lines = [
        f"# The studio, {datetime.date.today().isoformat()}",
        "",
        *(f"- {line}" for line in machine),
        f"- model {options.model}; {options.starts} starts after one that warms the disk, {options.takes} takes, "
        f"{options.watch_seconds:g} s of watching in each of {options.rounds} rounds",
        "",
        "| | median (smallest to largest) | aim: at most |",
        "|---|---|---|",
        *(f"| {title} | {Spread.of(values).show(2)} {unit} | {aim} |" for title, values, unit, aim in rows),
        "",
        f"Mean time to first sound: {statistics.fmean(measured.first_sound):.2f} s.",
        "",
        "## Ways through the page",
        "",
        "Presses are those of the mouse, and of keys outside text fields; typing is not counted.",
        "",
        "| | presses | at most | seconds |",
        "|---|---|---|---|",
        *(f"| {way.title} | {way.num_presses} | {way.max_presses} | {way.seconds:.2f} |" for way in ways),
    ]
    return "\n".join(lines)


def percent(shares: Sequence[float]) -> list[float]:
    """Shares as percentages."""
    return [100 * share for share in shares]


if __name__ == "__main__":
    main()
