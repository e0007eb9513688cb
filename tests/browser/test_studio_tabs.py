"""The tabs as a person uses them on a first visit: a sample heard, two voices compared blind, one kept."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe_findings import axe_findings
from tests.browser.sounds import PATIENCE_MS, loudest, speak, wait_until_sounding
from tests.browser.test_voice_page import UNNAMED_CONTROLS

pytestmark = pytest.mark.browser


LOW_CONTRAST = Path(__file__).with_name("low_contrast.js").read_text(encoding="utf-8")

TABS = ("Speak", "Data", "Tune", "Compare", "Voices")


def open_tab(page: Page, name: str) -> None:
    """Go to a tab."""
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.locator("#places [aria-current=page]")).to_have_text(name)


def choose_voice(page: Page, name: str) -> None:
    """Press a voice's card."""
    page.locator(".voice-choice", has_text=name).click()
    expect(page.locator("#voice-about")).to_contain_text(f"Sample voice {name}")


def say(page: Page, text: str, number: int) -> None:
    """A sample voice says something, and the take is there."""
    page.locator("#text textarea").fill(text)
    speak(page)
    expect(page.locator("#takes")).to_contain_text(f"Take {number}")


def choose(page: Page, dropdown: str, label: str) -> None:
    field = page.locator(f"#{dropdown} input")
    field.click()
    # The list of another field may still be closing.
    own = page.locator(f"#{field.get_attribute('aria-controls')}")
    own.get_by_role("option", name=label, exact=True).click()


def begin_comparing(page: Page, sentences: str) -> None:
    """Compare a sample cloned in both ways."""
    open_tab(page, "Compare")
    expect(page.locator("#side-1 input")).not_to_have_value("")
    choose(page, "side-1", "Sample Iris: zero-shot, in context")
    choose(page, "side-2", "Sample Iris: zero-shot, from the sound alone")
    page.locator("#compare-settings > button").click()
    text = page.locator("#compare-text textarea")
    # An accordion makes its fields when it is opened; what is filled in before they have their own text is replaced.
    expect(text).not_to_have_value("")
    text.fill(sentences)
    page.locator("#compare").click()
    await_pair(page)


def sentence_of(page: Page, tile: Locator) -> Locator:
    """The play button of a voice's sentence. Random weights now and then lose it, and get another chance."""
    button = tile.locator(".play")
    for _ in range(5):
        expect(button.or_(tile.get_by_text("Too short"))).to_be_visible()
        if button.count():
            break
        open_tab(page, "Speak")
        open_tab(page, "Voices")
    return button


def free_name(words: str) -> str:
    """A name that no voice of the app has yet, also where the test is tried again."""
    return f"{words} {uuid.uuid4().hex[:6]}"


def await_pair(page: Page, after: str | None = "") -> str:
    """Wait until a pair other than the one before is there to be voted on; returns its id."""
    # Read in the same moment: an update that was on the way may show once more that it is still being made.
    shown = page.wait_for_function(
        "(after) => [document.querySelector('.test')?.dataset.comparison].find((one) => one && one !== after)",
        arg=after,
        timeout=PATIENCE_MS,
    )
    return str(shown.json_value())


FOCUS_IS_SEEN = """() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const isInView = box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight;
  const isOutlined = style.outlineStyle === "solid" && parseInt(style.outlineWidth) > 1;
  return one.matches(":focus-visible") && isInView && isOutlined;
}"""


def tab_to(page: Page, place: str) -> None:
    """Press Tab until the focus is somewhere in `place`, which it must show on the way and there."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("(place) => document.activeElement.closest(place) !== null", place):
            # Whoever walks on with Tab follows a focus that scrolls into view.
            page.wait_for_function(FOCUS_IS_SEEN, timeout=PATIENCE_MS)
            return
    raise AssertionError(f"no Tab leads to {place}")


def test_on_a_first_visit_a_sample_voice_is_heard_with_keys_alone(open_page, app):
    page = open_page(app.address)
    expect(page.locator("#speak")).to_be_enabled()
    tab_to(page, ".voice-choice")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.locator(".voice-card.chosen")).to_contain_text("Owen")
    expect(page.locator("#voice-about")).to_contain_text("Sample voice ")
    tab_to(page, "#text")
    page.keyboard.press("Control+A")
    page.keyboard.type("It is spoken with keys alone.")
    tab_to(page, "#speak")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("Take 1 is ready")
    page.wait_for_function("window.sounds.length > 0", timeout=PATIENCE_MS)
    assert max(sound["peak"] for sound in page.evaluate("window.sounds.map(({peak}) => ({peak}))")) > 0.01
    expect(page.locator("#takes")).to_contain_text("It is spoken with keys alone.")
    assert loudest(page.locator("#takes .play")) > 0.01
    tab_to(page, "#takes .play")
    page.keyboard.press("Space")
    wait_until_sounding(page, page.locator("#takes .play"))
    takes_come_back_and_go(page)


def takes_come_back_and_go(page: Page) -> None:
    """What was spoken is there at the next visit of the same browser, until its person deletes it."""
    page.reload()
    expect(page.locator("#takes h3")).to_have_text("Take 1")
    assert loudest(page.locator("#takes .play")) > 0.01
    page.locator("#takes summary").click()
    page.locator("#takes .delete-take").click()
    expect(page.locator("#takes")).to_contain_text("also those of earlier visits")
    page.reload()
    expect(page.locator("#speak")).to_be_enabled()
    assert page.locator("#takes h3").count() == 0


def test_two_voices_are_compared_blind_and_the_winner_is_kept(open_page, app):
    page = open_page(app.address)
    begin_comparing(page, "Hello there.")
    stage = page.locator("#stage")
    assert stage.locator(".play").count() == 2
    assert all(loudest(stage.locator(".play").nth(number)) > 0.01 for number in range(2))
    expect(stage).not_to_contain_text("Sample Iris")
    assert stage.locator("[data-verdict=C]").count() == 0
    assert axe_findings(page) == []
    stage.locator("[data-verdict=A]").click()
    expect(stage.locator("h2")).to_contain_text("Sample Iris")
    expect(stage.locator("h2")).to_be_focused()
    expect(stage).to_contain_text("that can still be luck")
    expect(stage).to_contain_text("Your vote: Sample Iris")
    assert stage.locator("[data-verdict]").count() == 0
    winner = free_name("The winner")
    page.locator("#keep-name input, #keep-name textarea").first.fill(winner)
    page.locator("#keep").click()
    expect(page.locator("#kept")).to_contain_text(f"{winner} is in the library.")
    assert axe_findings(page) == []
    page.locator("#kept [data-place=voices]").click()
    tile = page.locator(".voice-tile", has_text=winner)
    assert loudest(sentence_of(page, tile)) > 0.01
    tile.locator("summary").first.click()
    tile.get_by_text("Use from a program").click()
    expect(tile).to_contain_text("v1/audio/speech")
    assert axe_findings(page) == []
    tile.locator("[data-do=delete]").click()
    gone = page.locator(".voice-tile.gone")
    expect(gone).to_contain_text(f"{winner} was deleted")
    expect(gone.locator("[data-answer]")).to_be_focused()
    gone.locator("[data-do=undo]").click()
    expect(tile).to_contain_text(f"{winner} is back.")
    expect(tile.locator("[data-answer]")).to_be_focused()
    tile.locator("[data-go=speak]").click()
    expect(page.locator("#places [aria-current=page]")).to_have_text("Speak")
    expect(page.locator(".voice-card.chosen")).to_contain_text(winner)
    open_tab(page, "Voices")
    tile.locator("[data-go=compare]").click()
    expect(page.locator("#side-1 input")).to_have_value(re.compile(f"^{winner}"))


def test_on_a_phone_a_voice_is_heard_compared_and_kept(open_page, app):
    page = open_page(app.address, width=390)
    expect(page.locator("#speak")).to_be_enabled()
    choose_voice(page, "Rufus")
    say(page, "Said into a telephone.", 1)
    assert loudest(page.locator("#takes .play").first) > 0.01
    open_tab(page, "Compare")
    # Others that vote in this app do so on Iris.
    choose(page, "side-1", "Sample Rufus: zero-shot, in context")
    choose(page, "side-2", "Sample Owen: zero-shot, in context")
    page.locator("#compare-settings > button").click()
    page.locator("#compare-text textarea").fill("Hello there.")
    page.locator("#compare").click()
    await_pair(page)
    page.locator("#stage [data-verdict=B]").click()
    expect(page.locator("#stage h2")).to_be_focused()
    kept = free_name("Of the telephone")
    page.locator("#keep-name input, #keep-name textarea").first.fill(kept)
    page.locator("#keep").click()
    expect(page.locator("#kept")).to_contain_text(f"{kept} is in the library.")
    page.locator("#kept [data-place=voices]").click()
    assert loudest(sentence_of(page, page.locator(".voice-tile", has_text=kept))) > 0.01
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_ten_blind_votes_take_ten_keys(open_page, app):
    page = open_page(app.address)
    begin_comparing(page, "\n".join(f"Hm, {number}." for number in range(1, 11)))
    expect(page.locator(".test-dots i")).to_have_count(10)
    presses, comparison = "12SN112211", ""
    for number, key in enumerate(presses):
        comparison = await_pair(page, comparison)
        expect(page.locator(".test-dots .done")).to_have_count(number)
        expect(page.locator("#stage")).not_to_contain_text("Sample Iris")
        page.keyboard.press(key)
    stage = page.locator("#stage")
    expect(stage.locator("h2")).to_be_visible()
    expect(stage).to_contain_text("2 without a preference")
    won = [int(words) for words in stage.locator(".take-won").all_inner_texts()]
    assert sum(won) == 8
    expect(stage.locator(".test-pairs article")).to_have_count(10)
    # The one action that keeps what won; votes that are even keep nothing.
    if won[0] != won[1]:
        expect(page.locator("#keep")).to_be_visible()
    expect(page.locator("#further")).to_be_visible()


def test_votes_survive_a_reload_in_their_tab_alone(open_page, app):
    """The test began again with the first sentence."""
    page = open_page(app.address)
    begin_comparing(page, "Hm, one.\nHm, two.\nHm, three.")
    before = await_pair(page)
    page.keyboard.press("1")
    comparison = await_pair(page, before)
    page.reload()
    expect(page.locator(".test-place")).to_have_text("2 / 3")
    expect(page.locator("#compare-form")).to_be_hidden()
    assert await_pair(page, before) == comparison
    page.keyboard.press("2")
    await_pair(page, comparison)
    page.keyboard.press("S")
    expect(page.locator("#stage h2")).to_be_visible()
    expect(page.locator("#stage .test-pairs article")).to_have_count(3)
    another = page.context.new_page()
    another.goto(f"{app.address}#compare")
    expect(another.locator("#compare-form")).to_be_visible()
    assert another.locator("#stage .test").count() == 0
    another.close()


MOMENT = """() => {
  const { url, position, seconds, isPlaying } = encore.player.current;
  const card = document.querySelector(`.take-card:has([data-play="${CSS.escape(url)}"])`);
  return { letter: card?.dataset.letter, position, seconds, isPlaying };
}"""


def test_a_and_b_switch_at_the_same_moment_of_the_sentence(open_page, app):
    page = open_page(app.address)
    begin_comparing(page, "Every morning the kettle was whistling before anyone had found the cups in the kitchen.")
    moments = json.loads(page.locator(".test").get_attribute("data-moments") or "{}")
    wait_until_sounding(page, page.locator(".take-card[data-letter=A] .play"))
    page.keyboard.press("Space")
    page.wait_for_function("() => !encore.player.current.isPlaying", timeout=PATIENCE_MS)
    for share in (0.3, 0.6):
        page.evaluate("(share) => encore.player.seek(share * encore.player.current.seconds)", share)
        at = page.evaluate(MOMENT)
        other = {"A": "B", "B": "A"}[at["letter"]]
        expected = float(np.interp(at["position"], moments[at["letter"]], moments[other]))
        page.keyboard.press(other.lower())
        # Stopped in the very moment at which the other take begins to sound.
        began = page.evaluate(
            """(letter) => new Promise((resolve) => {
              const look = () => {
                const { url, position, isPlaying } = encore.player.current;
                const other = document.querySelector(`.take-card[data-letter=${letter}] [data-play]`);
                if (other.dataset.play === url && isPlaying && position > 0) {
                  encore.player.pause();
                  resolve(position);
                } else setTimeout(look, 5);
              };
              look();
            })""",
            other,
        )
        assert began == pytest.approx(expected, abs=0.35)
        assert page.evaluate(MOMENT)["letter"] == other


def test_two_browsers_at_once_hear_their_own_takes(open_page, app):
    pages = {name: open_page(app.address) for name in ("Iris", "Owen")}
    for name, page in pages.items():
        choose_voice(page, name)
        page.locator("#text textarea").fill(f"It is {name}.")
    for page in pages.values():
        page.locator("#speak").click()
    sources = set()
    for name, page in pages.items():
        expect(page.locator("#status")).to_contain_text("Take 1 is ready")
        expect(page.locator("#takes h3")).to_have_count(1)
        expect(page.locator("#takes")).to_contain_text(f"It is {name}.")
        assert loudest(page.locator("#takes .play")) > 0.01
        sources.add(page.locator("#takes .play").get_attribute("data-play"))
        assert max(sound["peak"] for sound in page.evaluate("window.sounds.map(({peak}) => ({peak}))")) > 0.01
    assert len(sources) == 2


def test_who_consents_is_remembered_in_one_browser_only(open_page, app):
    page = open_page(app.address)
    expect(page.locator("#speak")).to_be_enabled()
    page.locator("[data-new]").click()
    who = page.locator("#who input, #who textarea").first
    who.fill("Ann Author")
    who.press("Tab")
    page.wait_for_function("localStorage.getItem('encore-who')", timeout=PATIENCE_MS)
    page.reload()
    expect(who).to_have_value("Ann Author")
    expect(open_page(app.address).locator("#who input, #who textarea").first).to_have_value("")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 400), ("dark", 1280), ("light", 400)])
def test_every_tab_can_be_read(open_page, app, screenshots, theme, width):
    page = open_page(app.address, theme=theme, width=width)
    expect(page.locator("#speak")).to_be_enabled()
    for tab in TABS:
        open_tab(page, tab)
        assert page.evaluate(UNNAMED_CONTROLS) == []
        picture(page, screenshots / f"{tab.lower()}-{theme}-{width}.png", width)
    page.locator("#model-chip button").click()
    expect(page.locator("#findings")).to_contain_text("are free")
    assert page.evaluate(UNNAMED_CONTROLS) == []
    picture(page, screenshots / f"sheet-{theme}-{width}.png", width)


WIDER_THAN = """
(width) => document.documentElement.scrollWidth <= width ? [] : [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > width && one.checkVisibility())
    .map((one) => `${one.tagName} ${one.id} ${one.className} ${Math.round(one.getBoundingClientRect().right)}`)
"""
"""Where the page cannot be read without scrolling sideways: what sticks out."""


def picture(page: Page, path: Path, width: int) -> None:
    """Take a picture of the whole page, which must be readable and not wider than the screen."""
    # Colours fade in; half way there is no contrast worth measuring.
    page.wait_for_timeout(500)
    assert page.evaluate(LOW_CONTRAST) == []
    assert page.evaluate(WIDER_THAN, width) == []
    page.screenshot(path=path, full_page=True)
