"""A page of another site, in a browser for which that site's name leads to this machine (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Playwright

from tests.browser.conftest import ARGUMENTS
from tests.programs import find_program
from tests.ui.app_process import AppProcess

pytestmark = pytest.mark.browser

EVIL = "evil.example"

SEND = """
async address => {
  const form = new FormData();
  form.append("files", new Blob(["x".repeat(100000)]), "a.wav");
  try {
    const answer = await fetch(address + "gradio_api/upload", { method: "POST", mode: "no-cors", body: form });
    return answer.type;
  } catch (error) {
    return "failed";
  }
}
"""

READ = """
async address => {
  try {
    const answer = await fetch(address + "config", { credentials: "include" });
    return [answer.status, await answer.text()];
  } catch (error) {
    return [0, ""];
  }
}
"""


@pytest.fixture(scope="module")
def misled(playwright: Playwright) -> Iterator[Browser]:
    """Chromium, for which the name of an attacker's site leads here."""
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
    browser = playwright.chromium.launch(executable_path=find_program("chromium"), args=[*ARGUMENTS, rules])
    yield browser
    browser.close()


def test_a_foreign_host_name_shows_and_reads_nothing(app_without_model: AppProcess, misled: Browser):
    port = urlsplit(app_without_model.address).port
    page = misled.new_page()
    answer = page.goto(f"http://{EVIL}:{port}/")
    assert answer is not None
    assert answer.status == 403
    # The page that an attacker's own server would have sent before the name was led here.
    status, text = page.evaluate(READ, f"http://{EVIL}:{port}/")
    assert status == 403
    assert "components" not in text
    page.close()


def test_another_site_can_neither_read_nor_store(app_without_model: AppProcess, misled: Browser):
    temporary = app_without_model.log.parent / "temporary"

    def stored() -> set[str]:
        return {str(path) for path in temporary.rglob("*.wav")}

    before, page = stored(), misled.new_page()
    page.goto(f"http://{EVIL}:{urlsplit(app_without_model.address).port}/")
    assert page.evaluate(READ, app_without_model.address) == [0, ""]
    page.evaluate(SEND, app_without_model.address)
    assert stored() == before
    # The same from the studio's own page is stored: it is the origin that decides.
    page.goto(app_without_model.address)
    page.evaluate(SEND, app_without_model.address)
    assert len(stored()) == len(before) + 1
    page.close()
