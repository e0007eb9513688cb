"""The tabs as a person uses them on a first visit: a sample heard, two voices compared blind, one kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sounds import loudest, wait_until_sounding
from tests.browser.test_voice_page import UNNAMED_CONTROLS

pytestmark = pytest.mark.browser

PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)

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


def choose(page: Page, dropdown: str, label: str) -> None:
    page.locator(f"#{dropdown} input").click()
    page.get_by_role("option", name=label, exact=True).click()


def compare_sample(page: Page, text: str = "Hello there.") -> None:
    """Compare a sample cloned in both ways, which is what the tab proposes on a first visit."""
    open_tab(page, "Compare")
    expect(page.locator("#side-1 input")).to_have_value("Sample Iris: zero-shot, in context")
    expect(page.locator("#side-2 input")).to_have_value("Sample Iris: zero-shot, from the sound alone")
    page.locator("#compare-text textarea").fill(text)
    page.locator("#compare").click()
    expect(page.locator("#compare-status")).to_contain_text("Listen to all of them")


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
    compare_sample(page)
    takes = page.locator("#compare-takes")
    assert takes.locator(".play").count() == 2
    assert all(loudest(takes.locator(".play").nth(number)) > 0.01 for number in range(2))
    expect(takes).not_to_contain_text("Sample Iris")
    expect(page.locator("#vote-C")).to_be_hidden()
    page.locator("#vote-A").click()
    expect(page.locator("#vote-result")).to_contain_text("Your vote: A, Sample Iris")
    expect(page.locator("#vote-result")).to_contain_text("with 95 % confidence")
    expect(takes).to_contain_text("Sample Iris: zero-shot, in context")
    expect(page.locator("#vote-A")).to_be_hidden()
    page.locator("#keep-name input, #keep-name textarea").first.fill("The winner")
    page.locator("#keep").click()
    expect(page.locator("#kept")).to_contain_text("The winner is in the library.")
    open_tab(page, "Voices")
    expect(page.locator("#voices")).to_contain_text("The winner")
    expect(page.locator("#api")).to_contain_text("v1/audio/speech")
    page.locator("#delete").click()
    page.locator("#really-delete").click()
    expect(page.locator("#library-status")).to_contain_text("The winner was deleted")


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
