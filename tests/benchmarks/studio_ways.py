"""The ways a person takes through the page, in presses and seconds: from a sample, from a file, to a kept voice."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect

from backend.voices.samples import get_sample
from tests.browser.test_studio_tabs import await_pair, choose_voice, open_tab
from tests.browser.test_work_tabs import prepare_sample

PATIENCE_MS = 600_000
NUM_VOTES = 10

COUNT_PRESSES = """
window.presses = 0;
document.addEventListener("pointerdown", (event) => { if (event.isTrusted) window.presses += 1; }, true);
document.addEventListener("keydown", (event) => {
  if (event.isTrusted && !event.target.closest("input:not([type=radio]):not([type=checkbox]), textarea"))
    window.presses += 1;
}, true);
// How long a press waits for its answer: until words change in what is watched.
window.timeAnswer = (button, answer) => {
  window.answered = null;
  const place = document.querySelector(answer);
  document.querySelector(button).addEventListener("click", () => {
    const clicked = performance.now();
    const watcher = new MutationObserver(() => {
      window.answered = (performance.now() - clicked) / 1000;
      watcher.disconnect();
    });
    watcher.observe(place, { childList: true, subtree: true, characterData: true });
  }, { once: true, capture: true });
};
"""


@dataclass(frozen=True, kw_only=True)
class Way:
    """What somebody wants, the presses it took, at most how many it may take, and how long from the last press."""

    title: str
    num_presses: int
    max_presses: int
    seconds: float


def walk_all(open_page: Callable[[], Page], folder: Path) -> list[Way]:
    """Take every way, each as far as the one before it has led."""
    ways = [hear_a_sample(open_page()), hear_a_file(open_page(), folder)]
    ways.append(cancel_a_build(open_page()))
    # A new visitor: what was cancelled is still chosen on the other's page, and would be continued.
    page = open_page()
    ways += [tune(page), vote(page), keep(page)]
    return ways


def noted(way: Way) -> Way:
    """Say how far it is: training takes minutes."""
    print(way.title, way.num_presses, f"{way.seconds:.2f} s", file=sys.stderr, flush=True)
    return way


def hear_a_sample(page: Page) -> Way:
    """A card, and Speak: the text is there already."""
    page.evaluate("window.presses = 0")
    choose_voice(page, "Rufus")
    page.locator("#speak").click()
    presses = page.evaluate("window.presses")
    return noted(
        Way(title="sample voice to first sound", num_presses=presses, max_presses=2, seconds=first_sound(page))
    )


def hear_a_file(page: Page, folder: Path) -> Way:
    """A file of one's own, the consent, a name typed, and Speak."""
    sound = Path(shutil.copy(get_sample("owen").path, folder / f"mine{get_sample('owen').path.suffix}"))
    page.evaluate("window.presses = 0")
    page.locator("[data-new]").click()
    with page.expect_file_chooser() as chooser:
        page.locator("#upload button").first.click()
    chooser.value.set_files(sound)
    expect(page.locator("#verdict")).to_contain_text("Length")
    page.locator("#consent input").first.check()
    page.locator("#who input, #who textarea").first.fill("Owen Keeper")
    page.locator("#speak").click()
    presses = page.evaluate("window.presses")
    return noted(Way(title="own file to first sound", num_presses=presses, max_presses=5, seconds=first_sound(page)))


def first_sound(page: Page) -> float:
    """Seconds from the press on Speak."""
    page.wait_for_function("window.firstSound !== null", timeout=PATIENCE_MS)
    # The embedded model now and then ends a take at once; its first sound was heard all the same.
    expect(page.locator("#status")).to_contain_text(re.compile("is ready|Too short"))
    return float(page.evaluate("window.firstSound"))


def cancel_a_build(page: Page) -> Way:
    """A build that is not wanted any more."""
    choose_voice(page, "Rufus")
    open_tab(page, "Data")
    page.locator("#prepare").click()
    expect(page.locator("#cancel-prepare")).to_be_visible()
    page.wait_for_timeout(3000)
    page.evaluate("window.timeAnswer('#cancel-prepare', '#building')")
    page.evaluate("window.presses = 0")
    page.locator("#cancel-prepare").click()
    page.wait_for_function("window.answered !== null", timeout=PATIENCE_MS)
    presses, seconds = page.evaluate("[window.presses, window.answered]")
    expect(page.locator("#prepare-progress")).to_contain_text("Cancelled")
    return noted(
        Way(title="cancelling a build, until it is answered", num_presses=presses, max_presses=1, seconds=seconds)
    )


def tune(page: Page) -> Way:
    """From the name of the voice to the voice, with the recipe that is proposed."""
    prepare_sample(page)
    page.locator("#to-tune").click()
    expect(page.locator("#plan")).to_contain_text("steps, about")
    page.locator("#tune-voice input, #tune-voice textarea").first.fill("Owen tuned")
    page.evaluate("window.presses = 0")
    began = time.perf_counter()
    page.locator("#start-run").click()
    expect(page.locator("#run-status")).to_contain_text("Done", timeout=PATIENCE_MS * 3)
    return noted(
        Way(
            title="one click to a fine-tuned voice, after its name",
            num_presses=page.evaluate("window.presses"),
            max_presses=1,
            seconds=time.perf_counter() - began,
        )
    )


def vote(page: Page) -> Way:
    """Ten blind votes with keys; the seconds are those that the listener waited for pairs."""
    page.locator("#run-result").get_by_role("button", name="Compare").click()
    page.locator("#compare").click()
    page.evaluate("window.presses = 0")
    waited, before = 0.0, ""
    for _ in range(NUM_VOTES):
        began = time.perf_counter()
        before = await_pair(page, before)
        waited += time.perf_counter() - began
        page.keyboard.press("1")
    expect(page.locator("#stage")).to_contain_text("Your vote:")
    presses = page.evaluate("window.presses")
    return noted(
        Way(
            title="ten blind votes (keys), and what was waited for pairs",
            num_presses=presses,
            max_presses=NUM_VOTES,
            seconds=waited,
        )
    )


def keep(page: Page) -> Way:
    """Keep the winner."""
    expect(page.locator("#keep")).to_be_visible()
    page.evaluate("window.presses = 0")
    began = time.perf_counter()
    page.locator("#keep").click()
    expect(page.locator("#kept")).to_contain_text("in the library")
    return noted(
        Way(
            title="keeping the winner",
            num_presses=page.evaluate("window.presses"),
            max_presses=1,
            seconds=time.perf_counter() - began,
        )
    )
