"""Chromium, the running app, and pages that fail their test when something goes wrong behind the scenes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, expect, sync_playwright

from tests.browser.sounds import PATIENCE_MS
from tests.golden import GOLDEN_CHECKPOINT
from tests.programs import find_program
from tests.ui.app_process import AppProcess, start_app
from tests.ui.recordings import write_voice

ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    # A microphone that nobody has to speak into, and permission to use it.
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
]

# Notes what the page lets sound: when, for how long, how loud.
RECORD_SOUND = """
window.sounds = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (when) {
  const peak = this.buffer.getChannelData(0).reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
  const sound = { when, seconds: this.buffer.duration, peak, isOver: false };
  window.sounds.push(sound);
  this.addEventListener("ended", () => (sound.isOver = true));
  return start.call(this, when);
};
"""

OpenPage = Callable[..., Page]


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest) -> None:
    """How long `expect` waits, by the module's PATIENCE_MS: the setting is the process's, so each test makes it."""
    expect.set_options(timeout=getattr(request.module, "PATIENCE_MS", PATIENCE_MS))


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def microphone_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the browser's microphone hears: read from its start whenever a page begins to record, and once."""
    return tmp_path_factory.mktemp("microphone") / "voice.wav"


@pytest.fixture
def microphone(microphone_file: Path) -> Path:
    """The same, with somebody who goes on speaking; a test may write another WAV file there."""
    return write_voice(microphone_file, seconds=30.0)


@pytest.fixture(scope="session")
def chromium(playwright: Playwright, microphone_file: Path) -> Iterator[Browser]:
    executable = find_program("chromium")
    arguments = [*ARGUMENTS, f"--use-file-for-fake-audio-capture={microphone_file}%noloop"]
    browser = playwright.chromium.launch(executable_path=executable, args=arguments)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppProcess]:
    """The app with the golden checkpoint loaded."""
    with start_app(tmp_path_factory.mktemp("app"), model=str(GOLDEN_CHECKPOINT)) as started:
        yield started


@pytest.fixture(scope="session")
def app_without_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppProcess]:
    """The app as it is where the model it was told to use is not there; tests must not load one into it."""
    with start_app(tmp_path_factory.mktemp("app-without-model"), model="./no-such-model") as started:
        yield started


@pytest.fixture
def empty_app(tmp_path: Path) -> Iterator[AppProcess]:
    """An app without a model, for the test's own use; ask for it before `open_page`, so that it ends last."""
    with start_app(tmp_path / "empty-app", model="./no-such-model") as started:
        yield started


LEAVING = ("signal is aborted", "BodyStreamBuffer was aborted", "Connection errored out")
"""What a page says of requests that were under way when it was reloaded or its app was killed.

Gradio aborts its stream of events at `beforeunload`; how Chromium words that depends on whether a part of it had come.
"""


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[OpenPage]:
    """Open an address as a new visitor. Errors in the console and requests to other machines fail the test."""
    problems: list[str] = []
    contexts = []

    def note(problem: str) -> None:
        if not any(words in problem for words in LEAVING):
            problems.append(problem)

    def note_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            note(message.text)

    def note_request(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:", "blob:")):
            problems.append(f"request to {request.url}")

    def open_address(address: str, *, theme: str = "light", width: int = 1280) -> Page:
        context = chromium.new_context(color_scheme=theme, viewport={"width": width, "height": 900})
        contexts.append(context)
        context.add_init_script(RECORD_SOUND)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", note_console)
        page.on("pageerror", lambda error: note(str(error)))
        page.on("request", note_request)
        page.goto(address)
        page.locator("#speak").wait_for()
        return page

    yield open_address
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture
def screenshots() -> Path:
    """Where pictures for looking at go; git ignores it."""
    folder = Path(__file__).with_name("screenshots")
    folder.mkdir(exist_ok=True)
    return folder
