"""A dataset prepared from a sample voice as a person does it, and every tab of long work with something in it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.axe_findings import axe_findings
from tests.browser.sounds import wait_until_sounding
from tests.browser.test_studio_tabs import choose_voice, open_tab, picture

pytestmark = pytest.mark.browser

PATIENCE_MS = 300_000

WIDTHS = [("light", 1280), ("dark", 400), ("dark", 1280), ("light", 400)]


def prepare_sample(page):
    """Choose a sample, and prepare it in one process: Ray would take most of the time."""
    choose_voice(page, "Owen")
    open_tab(page, "Data")
    expect(page.locator("#dataset-mix")).to_contain_text("Owen")
    page.locator("#dataset-engineers > button").click()
    page.locator("#dataset-actors input, #dataset-actors textarea").first.fill("0")
    page.locator("#prepare").click()
    expect(page.locator("#prepare-progress")).to_contain_text("Ready.")
    expect(page.locator("#totals")).to_contain_text("of 10 ready")


def move_the_cut(page):
    """With a handle, by keys and by mouse, and back."""
    row = page.locator(".clip-row").nth(2)
    length = row.locator(".length").inner_text()
    handle = page.get_by_role("slider", name="End of clip 3")
    handle.focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("Cut moved.")
    expect(row.locator(".length")).not_to_have_text(length)
    box = page.get_by_role("slider", name="End of clip 3").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] - 30, box["y"] + 10)
    page.mouse.up()
    expect(row).to_contain_text("Cut moved.")
    row.locator(".menu > summary").click()
    row.get_by_role("button", name="Undo my cut").click()
    expect(row.locator(".length")).to_have_text(length)


def say_how_it_is_spoken(page):
    """In a row and for all clips of a filter, and back."""
    field = page.get_by_label("Style of clip 2", exact=True)
    field.fill("Excited")
    page.keyboard.press("Enter")
    expect(page.locator(".clip-row").nth(1)).to_contain_text("Style saved.")
    expect(field).to_have_value("excited")
    page.locator("#clip-filter label", has_text="No style").click()
    page.locator("#style-all :is(input, textarea)").fill("calm")
    page.locator("#set-style-all").click()
    expect(page.locator("#bulk-done")).to_contain_text("have the style calm now")
    expect(page.locator("#clip-filter label", has_text="No style")).to_have_count(0)
    page.locator("#undo-bulk").click()
    expect(page.locator("#clip-filter label", has_text="No style")).to_have_count(1)
    expect(page.locator("#clip-filter label", has_text="Style excited 1")).to_have_count(1)
    page.locator("#clip-filter label", has_text="All").click()


def test_a_sample_is_prepared_and_a_text_corrected(open_page, app, screenshots):
    page = open_page(app.address)
    prepare_sample(page)
    rows = page.locator(".clip-row")
    expect(page.get_by_label("What clip 1 says")).to_have_value(re.compile("lighthouse stands on a small rock"))
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("Space")
    wait_until_sounding(page, rows.nth(1).locator(".play"))
    page.keyboard.press("r")
    expect(rows.nth(1)).to_contain_text("Left out, by you")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("r")
    expect(rows.nth(1)).not_to_contain_text("by you")
    page.keyboard.press("Enter")
    field = page.get_by_label("What clip 2 says")
    expect(field).to_be_focused()
    field.fill("My father kept the light for thirty years.")
    page.keyboard.press("Enter")
    expect(rows.nth(1)).to_contain_text("Text saved.")
    expect(field).to_have_value("My father kept the light for thirty years.")
    field.fill("  ")
    page.keyboard.press("Enter")
    expect(rows.nth(1).get_by_role("alert")).to_be_focused()
    move_the_cut(page)
    say_how_it_is_spoken(page)
    page.locator("#apply").click()
    expect(page.locator("#stale")).not_to_contain_text("Apply the changes")
    page.locator("#to-tune").click()
    expect(page.locator("#places [aria-current=page]")).to_have_text("Tune")
    expect(page.locator("#plan")).to_contain_text("steps, about")
    expect(page.locator("#preset label", has_text="fits your")).to_have_count(1)
    expect(page.locator("#preset input:checked")).to_have_count(1)
    expect(page.locator("#start-run")).to_be_enabled()
    page.locator("#tune-advanced > button").click()
    expect(page.locator("#memory-picture")).to_contain_text("zero3")
    for theme, width in WIDTHS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("(isDark) => document.body.classList.toggle('dark', isDark)", theme == "dark")
        for tab in ("Data", "Tune"):
            open_tab(page, tab)
            assert axe_findings(page) == [], tab
            picture(page, screenshots / f"{tab.lower()}-filled-{theme}-{width}.png", width)
