"""Which recordings the page asks about before it goes: its script alone, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.ui.html.test_pages import VOICE
from ui.html.voices import saved_line
from ui.tabs.voice.source import UNSAVED_SCRIPT

pytestmark = pytest.mark.browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """The two places that the script looks at."""
    context = chromium.new_context()
    page = context.new_page()
    page.set_content('<div id="rail"></div><div id="saved-note"></div>')
    run = "(script) => new Function('element', script)(document.querySelector('#saved-note'))"
    page.evaluate(run, UNSAVED_SCRIPT.read_text(encoding="utf-8"))
    yield page
    context.close()


def show(page: Page, place: str, html: str) -> None:
    page.evaluate("([place, html]) => { document.querySelector(place).innerHTML = html; }", [place, html])


def give(page: Page, key: str) -> None:
    """A recording comes into the rail."""
    show(page, "#rail", f'<button class="voice-choice" data-kind="recording" data-voice-key="{key}"></button>')


def asks(page: Page) -> bool:
    return page.evaluate("() => !window.dispatchEvent(new Event('beforeunload', { cancelable: true }))")


def test_only_the_recording_that_was_saved_may_go(page: Page) -> None:
    """Another one that was given while the first was being saved was lost without a question."""
    assert not asks(page)
    give(page, "first")
    assert asks(page)
    give(page, "second")
    show(page, "#saved-note", saved_line(VOICE, "first"))
    assert asks(page)
    show(page, "#saved-note", saved_line(VOICE, "second"))
    assert not asks(page)
    give(page, "first")
    assert not asks(page), "it was saved before"
