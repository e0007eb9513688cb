"""What stands around every tab: the bar, the sheet behind the model, the player, and the keys that all of it obeys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from backend.store.home import Home
from backend.voices.registry import Voices
from backend.voices.samples import get_sample
from backend.voices.styles import StyleClip
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.browser.axe_findings import axe_findings
from tests.browser.sounds import PATIENCE_MS, play, player, wait_until_sounding
from tests.browser.test_studio_tabs import choose, choose_voice, free_name, open_tab, say
from tests.browser.test_voice_page import ENDLESS_TEXT
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.app_process import AppProcess
from tests.ui.recordings import write_voice

pytestmark = pytest.mark.browser


@pytest.fixture
def page(open_page, app) -> Page:
    page = open_page(app.address)
    expect(page.locator("#speak")).to_be_enabled()
    choose_voice(page, "Iris")
    return page


def test_the_tab_is_in_the_address_and_survives_a_reload(open_page, app):
    page = open_page(app.address)
    open_tab(page, "Data")
    assert page.url.endswith("#data")
    page.reload()
    expect(page.locator("#places [aria-current=page]")).to_have_text("Data")
    expect(page.locator("#prepare")).to_be_visible()
    open_tab(page, "Voices")
    page.go_back()
    expect(page.locator("#places [aria-current=page]")).to_have_text("Data")
    page.goto(f"{app.address}#compare")
    expect(page.locator("#compare")).to_be_visible()
    assert page.title() == "Compare · Encore"


def test_arrow_keys_move_between_the_places_which_are_one_stop(open_page, app):
    page = open_page(app.address)
    page.get_by_role("link", name="Speak").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#places [aria-current=page]")).to_have_text("Data")
    expect(page.get_by_role("link", name="Data")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#places [aria-current=page]")).to_have_text("Voices")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#places')") is None


def test_the_first_stop_leads_to_the_text(open_page, app):
    page = open_page(app.address)
    open_tab(page, "Data")
    page.locator("h1").click()
    page.evaluate("document.activeElement.blur()")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#text textarea")).to_be_focused()


def test_light_and_dark_are_kept(open_page, app):
    page = open_page(app.address)
    expect(page.locator("body")).not_to_have_class("dark")
    page.locator("#theme").click()
    page.reload()
    page.locator("#speak").wait_for()
    page.wait_for_function("document.body.classList.contains('dark')", timeout=PATIENCE_MS)
    page.locator("#theme").click()
    page.wait_for_function("!document.body.classList.contains('dark')", timeout=PATIENCE_MS)


def test_the_sheet_takes_the_focus_and_gives_it_back(open_page, app):
    page = open_page(app.address)
    chip = page.locator("#model-chip button")
    expect(chip).to_contain_text("CPU")
    chip.click()
    expect(page.locator(".close-sheet")).to_be_focused()
    expect(page.locator("#findings")).to_contain_text("are free")
    page.keyboard.press("Escape")
    expect(page.locator("#sheet")).to_be_hidden()
    expect(chip).to_be_focused()
    chip.click()
    page.locator("#bar").click(position={"x": 5, "y": 5}, force=True)
    expect(page.locator("#sheet")).to_be_hidden()


def test_one_sound_at_a_time(page):
    say(page, "One sentence after another. " * 4, 1)
    recording, take = page.locator(".voice-card.chosen .play"), page.locator("#takes .play")
    play(page, recording)
    take.click()
    wait_until_sounding(page, take)
    expect(take).to_have_attribute("aria-pressed", "true")
    expect(recording).to_have_attribute("aria-pressed", "false")
    # The live take is a sound like any other.
    page.locator("#text textarea").fill(ENDLESS_TEXT)
    sounds = page.evaluate("window.sounds.length")
    page.locator("#speak").click()
    page.wait_for_function("(before) => window.sounds.length > before", arg=sounds, timeout=PATIENCE_MS)
    expect(take.last).to_have_attribute("aria-pressed", "false")
    assert player(page)["url"] == ""
    play(page, recording)
    at = page.evaluate("new Promise((done) => setTimeout(() => done(encore.player.current.position), 300))")
    assert player(page)["position"] >= at > 0
    page.locator("#stop").click()


def test_the_player_seeks_where_one_clicks_and_by_keys(page):
    say(page, "One sentence after another. " * 6, 1)
    take = page.locator("#takes .take").first
    play(page, take.locator(".play"))
    page.locator(".dock-play").click()
    page.wait_for_function("!encore.player.current.isPlaying", timeout=PATIENCE_MS)
    page.wait_for_function("encore.player.current.seconds > 0", timeout=PATIENCE_MS)
    seconds = player(page)["seconds"]
    wave = page.locator(".dock-wave")
    box = wave.bounding_box()
    wave.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    assert player(page)["position"] == pytest.approx(seconds / 2, abs=0.5)
    wave.focus()
    page.keyboard.press("Home")
    # It plays on from where it was sent to, while the page is asked.
    assert player(page)["position"] == pytest.approx(0, abs=0.5)
    page.keyboard.press("ArrowRight")
    assert player(page)["position"] == pytest.approx(min(5, seconds), abs=0.5)
    page.keyboard.press("ArrowLeft")
    assert player(page)["position"] == pytest.approx(max(0, min(5, seconds) - 5), abs=0.5)
    drawn = take.locator("svg[data-seek]")
    place = drawn.bounding_box()
    drawn.click(position={"x": place["width"] * 0.1, "y": place["height"] / 2})
    page.wait_for_function("encore.player.current.isPlaying", timeout=PATIENCE_MS)
    page.locator("h1").click()
    page.keyboard.press("Space")
    page.wait_for_function("!encore.player.current.isPlaying", timeout=PATIENCE_MS)
    page.locator(".dock-speed").select_option("2")
    page.locator(".dock-volume input").fill("0.5")
    page.reload()
    page.locator("#speak").wait_for()
    assert page.evaluate("encore.player.settings") == {"speed": 2, "volume": 0.5}


def test_a_take_becomes_a_file_in_the_player_once_it_was_heard(page):
    say(page, "Hm, yes.", 1)
    take = page.locator("#takes .play")
    page.wait_for_function(
        "(url) => encore.player.current.url === url && !encore.player.current.isPlaying",
        arg=take.get_attribute("data-play"),
        timeout=PATIENCE_MS,
    )
    assert page.locator(".dock-download").get_attribute("download") == "sample-iris_hm-yes_t01.wav"
    page.locator(".dock-play").click()
    wait_until_sounding(page, take)


def test_while_it_is_made_one_can_pause_and_seek(page):
    page.locator("#text textarea").fill(ENDLESS_TEXT)
    page.locator("#speak").click()
    page.wait_for_function("encore.player.current?.seconds > 1.5", timeout=PATIENCE_MS)
    state = player(page)
    assert not state["isComplete"]
    assert state["title"].startswith("Say it again.")
    page.locator(".dock-play").click()
    page.wait_for_function("!encore.player.current.isPlaying", timeout=PATIENCE_MS)
    page.evaluate("encore.player.seek(1)")
    assert player(page)["position"] == pytest.approx(1.0, abs=0.1)
    page.locator(".dock-play").click()
    page.wait_for_function("encore.player.current.position > 1.1", timeout=PATIENCE_MS)
    page.locator("#stop").click()


@pytest.fixture
def styled(app: AppProcess, tmp_path: Path) -> Iterator[str]:
    """The name of a voice of the library that knows a style; others count the app's voices after it is gone."""
    name, recording = free_name("Styled"), write_voice(tmp_path / "styled.wav", seconds=1.2)
    voices = Voices(Home(app.log.parent))
    voices.add_fine_tuned(
        name,
        {"custom_voice": fine_tuned_checkpoint(tmp_path / "custom_voice"), "base": GOLDEN_CHECKPOINT},
        consent=get_sample("iris").consent(),
        model="tiny",
        reference=recording,
        styles=[StyleClip(name="calm", clip=recording, text="Hello.")],
    )
    yield name
    voices.delete(name)


def test_the_draft_voice_and_settings_survive_a_reload(styled, page):
    page.locator("#text textarea").fill("My draft.")
    page.locator("#way").get_by_text("Freer").click()
    page.locator("#settings-handle button").click()
    page.locator("#seed input, #seed textarea").first.fill("7")
    page.wait_for_timeout(500)
    page.reload()
    expect(page.locator("#text textarea")).to_have_value("My draft.")
    expect(page.locator(".voice-card.chosen")).to_contain_text("Iris")
    expect(page.locator("#way input:checked")).to_have_value("x-vector")
    page.locator("#settings-handle button").click()
    expect(page.locator("#seed input, #seed textarea").first).to_have_value("7")
    page.locator("#speak").click()
    expect(page.locator("#takes")).to_contain_text("My draft.")
    page.locator(".voice-choice", has_text=styled).click()
    choose(page, "style", "calm")
    page.wait_for_timeout(500)
    page.reload()
    expect(page.locator(".voice-card.chosen")).to_contain_text(styled)
    expect(page.locator("#style input")).to_have_value("calm")
    # A voice that has no such style speaks as usual.
    choose_voice(page, "Iris")
    expect(page.locator("#style")).to_be_hidden()


def test_speak_is_reached_in_twelve_stops_and_becomes_stop(page):
    page.evaluate("document.activeElement.blur()")
    page.locator("#text textarea").fill(ENDLESS_TEXT)
    page.locator(".skip").focus()
    stops = ["skip"]
    while stops[-1] != "speak" and len(stops) < 30:
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert stops[-1] == "speak"
    assert len(stops) <= 12, stops
    page.keyboard.press("Enter")
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator("#speak")).to_be_hidden()
    page.wait_for_function("window.sounds.length > 1", timeout=PATIENCE_MS)
    expect(page.locator("#stop")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#speak")).to_be_visible()
    expect(page.locator("#status")).to_contain_text("stopped before the end")


def test_a_voice_sounds_after_two_clicks(open_page, app):
    page = open_page(app.address)
    expect(page.locator("#speak")).to_be_enabled()
    page.locator(".voice-choice", has_text="Rufus").click()
    page.locator("#speak").click()
    page.wait_for_function("window.sounds.length > 0", timeout=PATIENCE_MS)


def test_speak_is_in_sight_on_a_phone(open_page, app):
    page = open_page(app.address, width=390)
    choose_voice(page, "Iris")
    page.locator("#text textarea").fill("A long text. " * 60)
    say(page, "A long text. " * 20, 1)
    page.evaluate("window.scrollTo(0, 0)")
    box = page.locator("#speak").bounding_box()
    assert box["y"] + box["height"] <= page.locator(".dock").bounding_box()["y"] + 1


def test_ctrl_enter_speaks(page):
    page.locator("#text textarea").fill("With two keys.")
    page.locator("#text textarea").press("Control+Enter")
    expect(page.locator("#takes")).to_contain_text("With two keys.")


def test_a_take_is_spoken_again(page):
    say(page, "Say it twice.", 1)
    page.locator("#text textarea").fill("Something else.")
    page.locator("#takes .again").click()
    expect(page.locator("#takes h3").first).to_have_text("Take 2")
    expect(page.locator("#takes blockquote").first).to_have_text("Say it twice.")


def test_lists_close_behind_the_focus(open_page, app):
    page = open_page(app.address)
    expect(page.locator("#speak")).to_be_enabled()
    for name in ("language",):
        field = page.locator(f"#{name} input").first
        field.focus()
        page.keyboard.press("Tab")
        expect(page.get_by_role("listbox")).to_have_count(0)
        expect(field).to_have_attribute("aria-expanded", "false")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_of_ours(open_page, app, theme):
    page = open_page(app.address, theme=theme)
    expect(page.locator("#speak")).to_be_enabled()
    choose_voice(page, "Iris")
    say(page, "Hm.", 1)
    for name in ("Speak", "Data", "Tune", "Compare", "Voices"):
        open_tab(page, name)
        page.wait_for_timeout(500)
        assert axe_findings(page) == [], name
    page.locator("#model-chip button").click()
    expect(page.locator("#findings")).to_contain_text("are free")
    page.wait_for_timeout(500)
    assert axe_findings(page) == []


def test_the_part_that_is_spoken_is_marked_in_its_text(page):
    say(page, "The kettle was whistling before anyone had found the cups. " * 8, 1)
    parts = page.locator("#takes .take").first.locator("[data-from]")
    assert parts.count() > 1
    # It is heard while it is made; the button would stop that.
    page.evaluate("encore.player.pause()")
    page.locator("#takes .play").first.click()
    page.evaluate("encore.player.seek(0)")
    expect(parts.first).to_have_class("spoken-now")
    page.evaluate("encore.player.seek(encore.player.current.seconds - 1.5)")
    expect(parts.last).to_have_class("spoken-now")
    expect(parts.first).not_to_have_class("spoken-now")
    expect(page.locator(".spoken-now")).to_have_count(0)


IS_CLEAR = """(body) => {
  const box = body.getBoundingClientRect();
  const middle = document.elementFromPoint(box.left + box.width / 2, box.bottom - 4);
  return box.left >= 0 && box.right <= innerWidth && body.contains(middle);
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_menus_open_inside_the_window_and_above_the_player(open_page, app, width):
    page = open_page(app.address, width=width)
    expect(page.locator("#speak")).to_be_enabled()
    choose_voice(page, "Iris")
    say(page, "Hm.", 1)
    expect(page.locator(".dock")).to_be_visible()
    page.locator("#takes .take").last.scroll_into_view_if_needed()
    page.locator("#takes .menu > summary").last.click()
    page.wait_for_function(IS_CLEAR, arg=page.locator("#takes .menu-body").last.element_handle())
    open_tab(page, "Voices")
    for tile in page.locator(".voice-tile").all():
        tile.locator(".menu > summary").click()
        page.wait_for_function(IS_CLEAR, arg=tile.locator(".menu-body").element_handle())
        page.keyboard.press("Escape")


def test_on_a_phone_the_places_are_at_the_bottom(open_page, app):
    page = open_page(app.address, width=390)
    expect(page.locator("#speak")).to_be_enabled()
    box = page.locator("#places").bounding_box()
    assert box["y"] + box["height"] == pytest.approx(900, abs=1)
    assert page.locator("#bar").bounding_box()["height"] <= 48
    open_tab(page, "Tune")
    expect(page.locator("#places [aria-current=page]")).to_have_text("Tune")


def test_nothing_of_gradio_shows_through(open_page, app):
    page = open_page(app.address)
    for words in ("Drop File Here", "Click to Upload", "Built with Gradio", "Use via API", "queue:"):
        shown = page.get_by_text(words)
        assert not any(
            one.is_visible() and one.evaluate("(e) => parseFloat(getComputedStyle(e).fontSize) > 0")
            for one in shown.all()
        ), words
    assert "svg" in page.request.get(f"{app.address}favicon.ico").headers["content-type"]


def test_german_browsers_read_german(chromium, app):
    context = chromium.new_context(locale="de-DE")
    page = context.new_page()
    page.goto(app.address)
    expect(page.get_by_role("link", name="Vergleichen")).to_be_visible()
    page.locator("#model-chip button").click()
    expect(page.locator("#load")).to_have_text("Laden")
    assert page.evaluate("document.documentElement.lang") == "de"
    context.close()
