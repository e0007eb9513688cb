"""What the page lets one hear: files behind play buttons, the player, and what is playing."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page

PATIENCE_MS = 120_000

# Decodes the file behind a play button and returns its length and loudest sample.
LISTEN = """async (button) => {
  const bytes = await (await fetch(button.dataset.play)).arrayBuffer();
  const sound = await new OfflineAudioContext(1, 1, 24000).decodeAudioData(bytes);
  const peak = sound.getChannelData(0).reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
  return { seconds: sound.duration, peak };
}"""

STATE = """() => {
  const source = window.encore.player.current;
  if (!source) return null;
  const { url, title, position, seconds, isPlaying, isComplete } = source;
  return { url, title, position, seconds, isPlaying, isComplete };
}"""

# Notes what the status line says. A take that is too short for its text is spoken once more, from its beginning: what
# it sounded like no longer counts.
WATCH_STATUS = """() => {
  window.said = [];
  const status = document.querySelector("#status");
  const note = () => {
    window.said.push(status.innerText);
    if (status.innerText.includes("speaking it once more")) window.sounds.length = 0;
  };
  const changes = { childList: true, subtree: true, characterData: true };
  if (!status.isWatched) new MutationObserver(note).observe(status, changes);
  status.isWatched = true;
}"""
# What it said last, once speaking has begun and ended. Before that, the line of the take before may be drawn anew.
TAKE_ENDED = """() => {
  const ended = /is ready|Too short \\(/;
  const begun = window.said.findIndex((text) => text && !ended.test(text));
  return begun >= 0 && window.said.slice(begun).find((text) => ended.test(text));
}"""


def speak(page: Page) -> None:
    """Press Speak until there is a take; `window.sounds` then holds its sound alone."""
    said = ""
    # Random weights now and then end at once, which is no take.
    for _ in range(5):
        page.evaluate(WATCH_STATUS)
        page.evaluate("window.sounds.length = 0")
        page.locator("#speak").click()
        said = page.wait_for_function(TAKE_ENDED, timeout=PATIENCE_MS).json_value()
        if "is ready" in said:
            return
    raise AssertionError(f"Five takes in a row came to nothing: {said}")


def listen(button: Locator) -> dict[str, float]:
    """Length and peak of what a play button plays."""
    heard: dict[str, float] = button.evaluate(LISTEN)
    return heard


def loudest(button: Locator) -> float:
    """Its peak alone."""
    return listen(button)["peak"]


def player(page: Page) -> dict[str, Any]:
    """What the dock shows."""
    state: dict[str, Any] = page.evaluate(STATE)
    return state


def play(page: Page, button: Locator) -> None:
    """Press a play button and wait until it sounds."""
    button.click()
    wait_until_sounding(page, button)


def wait_until_sounding(page: Page, button: Locator) -> None:
    """Until the file of a play button has been heard for a moment."""
    page.wait_for_function(
        "(url) => encore.player.current?.url === url && encore.player.current.position > 0.05",
        arg=button.get_attribute("data-play"),
        timeout=PATIENCE_MS,
    )
