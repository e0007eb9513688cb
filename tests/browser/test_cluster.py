"""The page of a studio that speaks on a cluster: the same buttons, and sentences where the cluster is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.backend.cluster.other_ray import WITHOUT_TOKEN, other_ray
from tests.browser.sounds import PATIENCE_MS, listen, loudest
from tests.browser.test_studio_tabs import begin_comparing, choose_voice, open_tab, say
from tests.browser.test_voice_page import ENDLESS_TEXT
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.app_process import AppProcess, start_app

pytestmark = [pytest.mark.browser, pytest.mark.ray]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ExitStack]:
    """A cluster for what the test starts; closing it is the end of the cluster."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        address = running.enter_context(other_ray(tmp_path))
        for name, value in {**WITHOUT_TOKEN, "RAY_ADDRESS": address}.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def studio(cluster: ExitStack, tmp_path: Path) -> Iterator[AppProcess]:
    with start_app(tmp_path / "home", model=str(GOLDEN_CHECKPOINT)) as started:
        yield started


def test_one_speaks_and_compares_on_a_cluster_until_it_is_lost(cluster, studio, open_page):
    page = open_page(studio.address)
    expect(page.locator("#model-chip")).to_contain_text("CPU, cluster")
    choose_voice(page, "Iris")
    say(page, "Said far away.", 1)
    heard = listen(page.locator("#takes .play"))
    assert heard["peak"] > 0.01
    live = page.evaluate("window.sounds.map(({ seconds }) => seconds)")
    assert sum(live) == pytest.approx(heard["seconds"], abs=1e-3)
    begin_comparing(page, "Hello there.")
    players = page.locator("#stage .play")
    assert all(loudest(players.nth(number)) > 0.01 for number in range(2))
    open_tab(page, "Speak")
    page.locator("#text textarea").fill(ENDLESS_TEXT)
    page.evaluate("window.sounds.length = 0")
    page.locator("#speak").click()
    page.wait_for_function("window.sounds.length > 2", timeout=PATIENCE_MS)
    cluster.close()
    expect(page.locator("#status")).to_contain_text("load the model on this computer (behind the model's name, above)")
    expect(page.locator("#speak")).to_be_visible()
    page.locator("#model-chip button").click()
    page.locator("#where").get_by_text("On this computer").click()
    page.locator("#load").click()
    expect(page.locator("#model-chip")).not_to_contain_text("cluster")
    page.keyboard.press("Escape")
    say(page, "Said here.", 2)
