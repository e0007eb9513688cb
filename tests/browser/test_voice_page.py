"""The page as a person uses it, in Chromium, against the running app."""

from __future__ import annotations

import shutil
from itertools import pairwise

import pytest
from playwright.sync_api import Page, expect

from tests.backend.audio.sounds import FORMATS, encode
from tests.browser.sounds import PATIENCE_MS, listen, play, speak
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import speak_like, write_broken, write_voice

pytestmark = pytest.mark.browser

# Generous: the point is what happens, not how fast a busy machine does it.

ENDLESS_TEXT = "Say it again. " * 7000

UNNAMED_CONTROLS = """() => [...document.querySelectorAll('button, input, textarea, select, a[href], summary')]
  .filter((control) => control.checkVisibility({ visibilityProperty: true })
    && !(control.ariaLabel || control.title || control.innerText
    || [...(control.labels || [])].some((label) => label.innerText.trim())
    || control.getAttribute('aria-labelledby') || control.placeholder))
  .map((control) => control.outerHTML.slice(0, 200))"""


def give(page: Page, path) -> None:
    page.locator("#upload input[type=file]").set_input_files(path)


def fill_in(page: Page, path, text: str) -> None:
    give(page, path)
    expect(page.locator("#verdict")).to_contain_text("Good to clone from.")
    page.locator("#text textarea").fill(text)
    agree(page)


def open_steps(page: Page) -> None:
    """The steps to a new voice."""
    if not page.locator("#upload").is_visible():
        page.locator("[data-new]").click()
    expect(page.locator("#upload")).to_be_visible()


def agree(page: Page) -> None:
    open_steps(page)
    page.locator("#consent input").first.check()
    page.locator("#who input, #who textarea").first.fill("Ann Author")


@pytest.fixture
def voice(tmp_path):
    return write_voice(tmp_path / "voice.wav")


def test_without_a_model_the_page_explains_and_waits(open_page, app_without_model, voice):
    page = open_page(app_without_model.address)
    # Nothing can be done without one: the sheet in which one is chosen is open.
    expect(page.locator("#sheet")).to_be_visible()
    expect(page.locator("#model-chip")).to_contain_text("No model")
    expect(page.locator("#model")).to_contain_text("No model is loaded.")
    expect(page.locator("#loading")).to_contain_text("no-such-model was not loaded. There is no folder")
    explanation = page.locator("#explanation")
    for words in ("Qwen/Qwen3-TTS-12Hz-0.6B-Base", "2.5 GB to download", "Without a network", "type its path"):
        expect(explanation).to_contain_text(words)
    page.keyboard.press("Escape")
    expect(page.locator("#sheet")).to_be_hidden()
    expect(page.locator("#speak")).to_be_disabled()
    expect(page.locator("#speak")).to_have_text("Waiting for a model")
    give(page, voice)
    expect(page.locator("#verdict")).to_contain_text("Good to clone from. Length 4.0 s")
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.locator("#compare")).to_be_disabled()
    expect(page.locator("#compare")).to_have_text("Waiting for a model")


def test_from_a_typed_folder_to_a_take_that_sounds(empty_app, open_page, tmp_path, voice):
    folder = shutil.copytree(GOLDEN_CHECKPOINT, tmp_path / "a model")
    page = open_page(empty_app.address)
    expect(page.locator("#loading")).to_contain_text("was not loaded")
    page.locator("#model-choice input").fill(str(folder))
    page.locator("#load").click()
    expect(page.locator("#model")).to_contain_text("Model: a model, in full precision (fp32) on the CPU")
    expect(page.locator("#explanation")).to_be_hidden()
    expect(page.locator("#model-chip")).to_have_text("a model · CPU")
    fill_in(page, voice, "Hello. How are you today?")
    speak(page)
    expect(page.locator("#status")).to_contain_text("Take 1 is ready")
    button = page.locator("#takes .play")
    heard = listen(button)
    assert heard["seconds"] > 0.1
    assert heard["peak"] > 0.01
    live = page.evaluate("window.sounds.map(({when, seconds, peak}) => ({when, seconds, peak}))")
    assert sum(sound["seconds"] for sound in live) == pytest.approx(heard["seconds"], abs=1e-3)
    assert max(sound["peak"] for sound in live) == pytest.approx(heard["peak"], abs=1e-3)
    play(page, button)


def test_chunks_follow_each_other_without_a_gap(open_page, app, voice):
    page = open_page(app.address)
    fill_in(page, voice, "One sentence after another. " * 6)
    speak(page)
    sounds = page.evaluate("window.sounds.map(({when, seconds}) => ({when, seconds}))")
    assert len(sounds) > 3
    for sound, following in pairwise(sounds):
        # A busy machine may fall behind; then there is a pause, but never an overlap.
        assert following["when"] >= sound["when"] + sound["seconds"] - 1e-6


def test_stop_is_silent_at_once_and_keeps_what_was_heard(open_page, app, voice):
    page = open_page(app.address)
    fill_in(page, voice, ENDLESS_TEXT)
    page.locator("#speak").click()
    page.wait_for_function("window.sounds.length > 2", timeout=PATIENCE_MS)
    page.locator("#stop").click()
    page.wait_for_function("window.sounds.every((sound) => sound.isOver)", timeout=PATIENCE_MS)
    expect(page.locator("#status")).to_contain_text("stopped before the end")
    assert listen(page.locator("#takes .play"))["peak"] > 0.01


def test_a_closed_tab_frees_the_model_for_the_next_visitor(open_page, app, voice):
    leaving = open_page(app.address)
    fill_in(leaving, voice, ENDLESS_TEXT)
    leaving.locator("#speak").click()
    leaving.wait_for_function("window.sounds.length > 0", timeout=PATIENCE_MS)
    leaving.close()
    page = open_page(app.address)
    fill_in(page, voice, "My turn.")
    speak(page)
    expect(page.locator("#status")).to_contain_text("Take 1 is ready")


def test_a_broken_recording_is_refused_in_words_and_the_page_goes_on(open_page, app, tmp_path, voice):
    page = open_page(app.address)
    give(page, write_broken(tmp_path / "broken.wav"))
    expect(page.locator("#verdict")).to_contain_text("This recording cannot be used. broken.wav is not a kind of audio")
    open_steps(page)
    page.locator("#upload button[aria-label='Clear'], #upload button[title='Clear']").first.click()
    expect(page.locator("#verdict")).not_to_contain_text("cannot be used")
    form = next(form for form in FORMATS if (form.suffix, form.codec) == ("mp4", "aac"))
    fill_in(page, encode(tmp_path / "phone.mp4", speak_like(4.0, rate=form.rate), form), "Hm.")
    speak(page)


def test_without_consent_nothing_is_spoken_and_the_reason_is_shown(open_page, app, voice):
    page = open_page(app.address)
    give(page, voice)
    expect(page.locator("#verdict")).to_contain_text("Good to clone from.")
    page.locator("#speak").click()
    # Beside the button, and one press leads there.
    expect(page.locator("#status")).to_contain_text("choose the consent")
    assert page.get_by_test_id("toast-body").count() == 0
    page.locator("[data-open-voice]").click()
    expect(page.locator("#consent")).to_be_visible()
    assert page.locator("#takes .play").count() == 0
    agree(page)
    page.locator("#text textarea").fill("Hm.")
    speak(page)


def test_a_voice_that_is_not_saved_is_asked_about_before_the_page_goes(open_page, app, voice):
    """A reload took the recording along, with the name and the transcript that had been typed."""
    page, asked = open_page(app.address), []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.locator("#text textarea").click()
    page.reload()
    assert asked == [], "there is nothing to lose"
    fill_in(page, voice, "Hm.")
    page.locator("#voice-name input, #voice-name textarea").first.fill("Unsaved")
    expect(page.locator('.voice-choice[data-kind="recording"]')).to_be_visible()
    page.reload()
    assert asked == ["beforeunload"]
    fill_in(page, voice, "Hm.")
    page.locator("#voice-name input, #voice-name textarea").first.fill("Saved in time")
    page.locator("#save-voice").click()
    expect(page.locator("#saved-note")).to_contain_text("Saved in time is in the library")
    page.reload()
    assert asked == ["beforeunload"], "it is in the library"


def test_a_refusal_goes_when_its_cause_is_mended(open_page, app, voice):
    page = open_page(app.address)
    page.locator("#text textarea").fill("Hm.")
    page.locator("#speak").click()
    expect(page.locator("#status")).to_contain_text("Before it can speak: add a recording")
    give(page, voice)
    expect(page.locator("#verdict")).to_contain_text("Good to clone from.")
    expect(page.locator("#status")).not_to_contain_text("Before it can speak")
    open_steps(page)
    page.locator("#save-voice").click()
    expect(page.locator("#saved-note [role=alert]")).to_be_visible()
    page.locator("#speak").click()
    expect(page.locator("#status")).to_contain_text("choose the consent")
    expect(page.locator("#saved-note [role=alert]")).to_have_count(0)
    page.locator("#save-voice").click()
    expect(page.locator("#saved-note [role=alert]")).to_be_visible()
    expect(page.locator("#status [role=alert]")).to_have_count(0)
    agree(page)
    expect(page.locator("#saved-note [role=alert]")).to_have_count(0)
    speak(page)
    expect(page.locator("#status")).to_contain_text("Take 1 is ready")
    # What is no refusal stays.
    page.locator("#text textarea").fill("Hm, hm.")
    page.wait_for_timeout(500)
    expect(page.locator("#status")).to_contain_text("Take 1 is ready")


@pytest.mark.usefixtures("microphone")
def test_a_voice_is_recorded_in_the_browser(open_page, app):
    page = open_page(app.address)
    open_steps(page)
    page.locator("#microphone button", has_text="Record").click()
    expect(page.locator(".record-mark")).to_contain_text("Go on to 10 s")
    page.wait_for_timeout(4_000)
    page.locator("#microphone button", has_text="Stop").first.click()
    expect(page.locator(".record-mark")).to_be_hidden()
    expect(page.locator("#verdict")).to_contain_text("Length ")
    assert listen(page.locator("#verdict .play"))["peak"] > 0.01


def test_everything_is_reached_with_the_keyboard_and_has_a_name(open_page, app, voice):
    page = open_page(app.address)
    fill_in(page, voice, "Hm.")
    page.locator("h1").click()
    reached = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.closest('[id]:not([id^=html-])')?.id ?? ''"))
        if reached[-1] == "speak":
            break
    wanted = ["transcript", "consent", "text", "language", "speak"]
    # One stop for each statement of the consent.
    in_order = list(dict.fromkeys(name for name in reached if name in wanted))
    assert in_order == wanted, reached
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("is ready")
    assert page.evaluate(UNNAMED_CONTROLS) == []
