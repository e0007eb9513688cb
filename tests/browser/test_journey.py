"""From an upload to an exported voice: the real app, real Ray, the embedded model, and an app that is killed."""

from __future__ import annotations

import io
import re
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Page, expect

from backend.audio.writing import write_wav
from backend.runs.errors import RunStateInvalid
from backend.settings import Settings
from backend.studio import Studio
from backend.voices.reference import read_reference
from backend.voices.samples import get_sample
from tests.browser.sounds import loudest, play
from tests.browser.test_studio_tabs import await_pair, open_tab
from tests.programs import find_program
from tests.ui.app_process import AppProcess, free_port, start_app
from tests.ui.recordings import write_broken
from training.pretrain.corpus.sample_voices import SAMPLES
from training.pretrain.corpus.tts_engines import SAMPLE_RATE_HZ, synthesize

pytestmark = [pytest.mark.browser, pytest.mark.ray]

PATIENCE_MS = 480_000
"""On a busy machine Ray alone takes minutes to start."""


NUM_SENTENCES = 6
NUM_PHRASES = 5
NUM_STEPS = 60
CORRECTED = "My father kept it for thirty years, and his brother before him."


class Program:
    """The app of one home, which may be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        # The same at every start: what a browser remembers belongs to an address.
        self._port = free_port()
        self._stack = ExitStack()
        self._app: AppProcess | None = None

    def start(self) -> str:
        """Start it; returns its address."""
        self._app = self._stack.enter_context(start_app(self.home, model="mini", port=self._port))
        return self._app.address

    def kill(self) -> None:
        """As a crash or a pulled plug does: nothing is tidied up."""
        assert self._app is not None
        self._app.process.kill()
        self._app.process.wait()

    def end(self) -> None:
        """Leave no process behind, whatever the test came to."""
        self._stack.close()
        runs = Studio(Settings(home=self.home)).runs
        for run in runs.list():
            if run.state.is_active:
                with suppress(RunStateInvalid):  # it has just ended
                    runs.cancel(run.id)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path / "home")
    yield program
    program.end()


def write_recordings(folder: Path) -> tuple[list[Path], list[Path]]:
    """A sentence a file, as people record them, and what each says."""
    sample = get_sample("owen")
    recording = read_reference(sample.path)
    folder.mkdir()
    sounds, texts = [], []
    for number, sentence in enumerate(sample.sentences[:NUM_SENTENCES], 1):
        first, last = (
            round(seconds * recording.sample_rate)
            for seconds in (sentence.start_seconds - 0.15, sentence.end_seconds + 0.15)
        )
        sounds.append(folder / f"sentence-{number}.wav")
        texts.append(folder / f"sentence-{number}.txt")
        write_wav(sounds[-1], recording.samples[first:last], recording.sample_rate)
        texts[-1].write_text(sentence.text + "\n", encoding="utf-8")
    return sounds, texts


def upload_and_hear(page: Page, sounds: list[Path], broken: Path) -> None:
    """Recordings of which one is broken, and the voice of the others."""
    page.locator("#upload input[type=file]").set_input_files([broken, *sounds])
    expect(page.locator("#verdict")).to_contain_text("broken.wav is not a kind of audio file")
    expect(page.locator("#verdict .play")).to_have_count(len(sounds))
    page.locator("[data-new]").click()
    page.locator("#consent input").first.check()
    page.locator("#who input, #who textarea").first.fill("Owen Keeper")
    page.locator("#text textarea").fill("Hello, it is me.")
    page.locator("#speak").click()
    expect(page.locator("#status")).to_contain_text("Take 1 is ready")
    assert max(sound["peak"] for sound in page.evaluate("window.sounds.map(({peak}) => ({peak}))")) > 0.01
    button = page.locator("#takes .play")
    assert loudest(button) > 0.01
    play(page, button)


def say_consent_aloud(page: Page, microphone: Path) -> None:
    """The phrase that the page has drawn, read into the microphone by the voice that is cloned.

    The transcriber may mishear a phrase, so there are a few to read.
    """
    page.locator("#spoken-consent > button").click()
    result = page.locator("#spoken-result")
    for _ in range(NUM_PHRASES):
        page.locator("#draw-phrase").click()
        expect(result).to_have_text("")
        expect(page.locator("#phrase strong")).to_contain_text("I agree that my voice is cloned.")
        record_phrase(page, microphone, page.locator("#phrase strong").inner_text().strip("“”"))
        deadline = time.monotonic() + PATIENCE_MS / 1000
        # The recording takes a moment to arrive; until then the page says that it is still to be made.
        while not re.search("Heard and recognised|what was heard is|not spoken by the voice", result.inner_text()):
            assert time.monotonic() < deadline, result.inner_text()
            if "Listening" not in result.inner_text():
                page.locator("#check-phrase").click()
            page.wait_for_timeout(500)
        expect(page.locator("#stop-phrase")).to_be_hidden()
        if "Heard and recognised" in result.inner_text():
            return
    raise AssertionError(f"none of {NUM_PHRASES} phrases was understood: {result.inner_text()}")


def record_phrase(page: Page, microphone: Path, phrase: str) -> None:
    """Let the browser hear it, after a moment in which the page begins to record."""
    said = synthesize(next(sample.speaker for sample in SAMPLES if sample.name == "owen"), phrase)
    silence = np.zeros(SAMPLE_RATE_HZ, np.int16)
    soundfile.write(microphone, np.concatenate([silence, said, silence]), SAMPLE_RATE_HZ, subtype="PCM_16")
    page.locator("#spoken button", has_text="Record").click()
    stop = page.locator("#spoken button", has_text="Stop").first
    stop.wait_for()
    page.wait_for_timeout((len(said) / SAMPLE_RATE_HZ + 1.5) * 1000)
    stop.click()


def prepare_and_correct(page: Page, texts: list[Path]) -> None:
    """A dataset of the same recordings, in one process: Ray would take longer to start than that to work."""
    open_tab(page, "Data")
    expect(page.locator("#dataset-mix")).to_contain_text("sentence-1.wav")
    expect(page.locator("#dataset-mix input")).to_be_checked()
    page.locator("#dataset-files input[type=file]").set_input_files(texts)
    expect(page.locator("#dataset-sources")).to_contain_text(str(len(texts)))
    page.locator("#dataset-name input, #dataset-name textarea").first.fill("owen")
    page.locator("#dataset-engineers > button").click()
    page.locator("#dataset-actors input, #dataset-actors textarea").first.fill("0")
    page.locator("#prepare").click()
    expect(page.locator("#prepare-progress")).to_contain_text("Ready.")
    expect(page.locator("#totals")).to_contain_text("of 10 ready")
    field = page.get_by_label("What clip 2 says")
    field.fill(CORRECTED)
    field.press("Enter")
    expect(page.locator(".clip-row").nth(1)).to_contain_text("Text saved.")
    expect(field).to_have_value(CORRECTED)
    page.locator("#apply").click()
    expect(page.locator("#apply")).to_be_hidden()


def start_training(page: Page) -> None:
    """The button, and as an advanced option a run so short that one can wait for it."""
    page.locator("#to-tune").click()
    expect(page.locator("#places [aria-current=page]")).to_have_text("Tune")
    expect(page.locator("#plan")).to_contain_text("steps, about")
    page.locator("#tune-voice input, #tune-voice textarea").first.fill("Owen tuned")
    # What was stated on the Speak tab was for all recordings that were listed there.
    expect(page.locator("#tune-consents")).to_contain_text("Consent by Owen Keeper")
    expect(page.locator("#tune-consents")).not_to_contain_text("No consent yet")
    page.locator("#tune-advanced > button").click()
    page.locator("#num-steps input, #num-steps textarea").first.fill(str(NUM_STEPS))
    expect(page.locator("#plan")).to_contain_text(f"{NUM_STEPS} steps, about")
    page.locator("#start-run").click()
    expect(page.locator("#run-status")).to_contain_text("Owen tuned")
    expect(page.locator("#tune-form")).to_be_hidden()
    page.locator("#run-engineers > button").click()


def step_of(page: Page) -> int:
    """How far the run is, as the page says."""
    return int(re.search(r"Step (\d+) of", page.locator("#run-status").inner_text())[1])


def await_step_after(page: Page, step: int) -> None:
    page.wait_for_function(
        "(step) => +(document.querySelector('#run-status').innerText.match(/Step (\\d+) of/) ?? [0, 0])[1] > step",
        arg=step,
        timeout=PATIENCE_MS,
    )


def loss_curve(page: Page) -> str:
    return page.locator("#losses svg").first.inner_html()


def cancel_and_resume(page: Page) -> int:
    """Losses that move, a reload in the middle, a cancel, and on from there; returns where that was."""
    await_step_after(page, 1)
    expect(page.locator("#losses svg").first).to_be_visible()
    step, curve = step_of(page), loss_curve(page)
    # A very fast machine may be done with all steps by now.
    await_step_after(page, min(step, NUM_STEPS - 1))
    assert step == NUM_STEPS or loss_curve(page) != curve
    page.reload()
    expect(page.locator("#places [aria-current=page]")).to_have_text("Tune")
    expect(page.locator("#run-status")).to_contain_text("Owen tuned")
    assert step_of(page) >= step
    page.locator("#cancel-run").click()
    expect(page.locator("#run-status")).to_contain_text("Cancelled")
    step = step_of(page)
    page.locator("#resume-run").click()
    expect(page.locator("#cancel-run")).to_be_visible()
    return step


def compare_and_keep(page: Page) -> None:
    """The fine-tuned voice against itself without the fine-tune, which is what the tab proposes."""
    open_tab(page, "Compare")
    expect(page.locator("#side-1 input")).to_have_value("Owen tuned: fine-tuned")
    expect(page.locator("#side-2 input")).to_have_value(re.compile("zero-shot"))
    page.locator("#compare-settings > button").click()
    page.locator("#compare-text textarea").fill("Hello there.")
    page.locator("#compare").click()
    await_pair(page)
    stage = page.locator("#stage")
    players = stage.locator(".play")
    expect(players).to_have_count(2)
    assert all(loudest(players.nth(number)) > 0.01 for number in range(2))
    expect(stage).not_to_contain_text("Owen tuned")
    page.keyboard.press("1")
    expect(stage).to_contain_text("Your vote: Owen tuned")
    page.locator("#keep-name input, #keep-name textarea").first.fill("The one")
    page.locator("#keep").click()
    expect(page.locator("#kept")).to_contain_text("in the library")


def export_voice(page: Page) -> bytes:
    """Fetch the newest voice of the library as a file."""
    open_tab(page, "Voices")
    tile = page.locator(".voice-tile").first
    expect(page.locator("#shelf")).to_contain_text("Owen tuned")
    tile.locator("summary").first.click()
    tile.locator("[data-do=export]").click()
    with page.expect_download(timeout=PATIENCE_MS) as download:
        tile.locator("a.download").click(timeout=PATIENCE_MS)
    return download.value.path().read_bytes()


def test_from_an_upload_to_an_exported_voice(program, open_page, microphone, tmp_path):
    sounds, texts = write_recordings(tmp_path / "recordings")
    page = open_page(program.start())
    upload_and_hear(page, sounds, write_broken(tmp_path / "broken.wav"))
    if find_program("flite"):
        say_consent_aloud(page, microphone)
    prepare_and_correct(page, texts)
    start_training(page)
    step = cancel_and_resume(page)
    # A page that is open complains that its app is gone, as it should.
    page.goto("about:blank")
    program.kill()
    page.goto(program.start())
    expect(page.locator("#takes h3")).to_have_text("Take 1")
    assert loudest(page.locator("#takes .play")) > 0.01
    open_tab(page, "Tune")
    expect(page.locator("#run-status")).to_contain_text("Owen tuned")
    # On a machine too busy to finish its step within the time of a cancel, the run trains that step again.
    await_step_after(page, step - 1)
    expect(page.locator("#run-status")).to_contain_text("Done")
    result = page.locator("#run-result")
    expect(result).to_contain_text(re.compile("(to|from) owen (than|as) before"))
    expect(result.locator(".play")).to_have_count(2)
    assert loudest(result.locator(".play").first) > 0.01
    expect(page.locator("#run-dots")).to_contain_text("★")
    play(page, page.locator("#run-dots .play").last)
    page.locator("#run-engineers > button").click()
    expect(page.locator("#checkpoint-scores")).to_contain_text("best")
    assert loudest(page.locator("#checkpoint-takes details[open] .play").first) > 0.01
    expect(page.locator("#run-events")).not_to_contain_text("process was gone")
    result.get_by_role("button", name="Use this voice").click()
    expect(page.locator("#places [aria-current=page]")).to_have_text("Speak")
    expect(page.locator(".voice-choice[aria-checked=true]")).to_contain_text("Owen tuned")
    compare_and_keep(page)
    with zipfile.ZipFile(io.BytesIO(export_voice(page))) as file:
        assert file.testzip() is None
