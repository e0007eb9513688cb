"""A dataset prepared from a sample voice as a person does it, and every tab of long work with something in it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.test_studio_tabs import choose_voice, open_tab, picture

pytestmark = pytest.mark.browser

PATIENCE_MS = 300_000
expect.set_options(timeout=PATIENCE_MS)

WIDTHS = [("light", 1280), ("dark", 400), ("dark", 1280), ("light", 400)]


def prepare_sample(page):
    """Choose a sample, and prepare it in one process: Ray would take most of the time."""
    choose_voice(page, "Owen")
    open_tab(page, "Data")
    expect(page.locator("#dataset-sources")).to_contain_text("Owen")
    page.get_by_text("Transcription model and parallel workers").click()
    page.locator("#dataset-actors input, #dataset-actors textarea").first.fill("0")
    page.locator("#prepare").click()
    expect(page.locator("#prepare-progress")).to_contain_text("Ready.")
    expect(page.locator("#totals")).to_contain_text("min accepted of")


def test_a_sample_is_prepared_and_a_text_corrected(open_page, app, screenshots):
    page = open_page(app.address)
    prepare_sample(page)
    expect(page.locator("#clips")).to_contain_text("lighthouse stands on a small rock")
    page.get_by_role("button", name="Work on clip 2", exact=True).click()
    expect(page.locator("#clip-card")).to_contain_text("Clip 2")
    page.locator("#clip-text textarea").fill("My father kept the light for thirty years.")
    page.locator("#save-text").click()
    expect(page.locator("#clips")).to_contain_text("My father kept the light for thirty years.")
    page.locator("#apply").click()
    expect(page.locator("#stale")).not_to_contain_text("Apply the changes")
    open_tab(page, "Tune")
    expect(page.locator("#plan")).to_contain_text("steps, about")
    expect(page.locator("#start-run")).to_have_text(re.compile(r"Fine-tune \("))
    expect(page.locator("#memory-picture")).to_contain_text("zero3")
    for theme, width in WIDTHS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("(isDark) => document.body.classList.toggle('dark', isDark)", theme == "dark")
        for tab in ("Data", "Tune"):
            open_tab(page, tab)
            picture(page, screenshots / f"{tab.lower()}-filled-{theme}-{width}.png", width)
