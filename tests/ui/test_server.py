"""Serving: doors that stay shut, and a program that begins and ends cleanly."""

from __future__ import annotations

import gc
import socket

import httpx
import pytest

from backend.errors import SettingsError
from backend.settings import Settings
from tests.ui.app_process import free_port, start_app
from tests.ui.served_page import serve_page
from ui.layout import serve

pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")


def test_other_machines_are_not_let_in_without_a_password():
    with pytest.raises(SettingsError, match="ENCORE_AUTH"):
        serve(Settings(host="0.0.0.0"))


@pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")
def test_a_taken_port_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"Port {port} .*--port"):
            serve(Settings(port=port, home=tmp_path, model="none/of-them"))
    assert not list((tmp_path / "temporary").iterdir())
    gc.collect()  # Gradio forgets to close the socket it tried; let that be found here and not in another test


def test_with_a_password_nothing_is_served_without_it(tmp_path):
    with serve_page(tmp_path, auth="ann:secret") as page, httpx.Client(base_url=page.address) as browser:
        for path in ("config", "gradio_api/info", f"gradio_api/file={tmp_path}/x", "gradio_api/queue/data"):
            assert browser.get(path).status_code == 401, path
        assert browser.post("gradio_api/upload", files={"files": ("a.wav", b"x")}).status_code == 401
        assert browser.post("login", data={"username": "ann", "password": "wrong"}).status_code == 400
        assert browser.post("login", data={"username": "ann", "password": "secret"}).status_code == 200
        assert browser.get("config").status_code == 200


def test_pages_of_other_sites_may_not_use_it(tmp_path):
    """A site the person visits could otherwise read what is on localhost."""
    with serve_page(tmp_path) as page:
        answer = httpx.get(f"{page.address}config", headers={"Origin": "https://evil.example"})
        assert answer.headers.get("access-control-allow-origin") != "https://evil.example"
        assert answer.headers.get("access-control-allow-origin") != "*"


def test_nothing_is_reported_shared_or_kept_by_gradio(tmp_path, monkeypatch):
    for name in ("GRADIO_SHARE", "GRADIO_RUN_HISTORY", "GRADIO_MCP_SERVER"):
        monkeypatch.setenv(name, "True")
    with serve_page(tmp_path) as page:
        config = httpx.get(f"{page.address}config").json()
        assert not config["run_history"]
        assert not config["analytics_enabled"]
        assert httpx.get(f"{page.address}gradio_api/mcp/").status_code in (404, 405)
        named = {
            fn["api_name"]: fn["api_visibility"] for fn in config["dependencies"] if fn["api_visibility"] != "private"
        }
        assert {"load_model", "examine", "speak", "stop", "compare", "save_voice"} <= set(named)
        assert set(named.values()) == {"undocumented"}


def test_the_app_starts_serves_and_leaves_nothing_behind(tmp_path):
    with start_app(tmp_path / "home", model="/no/such/folder") as app:
        assert "Encore" in httpx.get(app.address).text
        files = {"files": ("voice.wav", b"x" * 100)}
        path = httpx.post(f"{app.address}gradio_api/upload", files=files).json()[0]
        assert path.startswith(str(tmp_path / "home" / "temporary"))
        assert app.end() == 0
        assert not list((tmp_path / "home" / "temporary").iterdir())
        assert app.log.read_text() == ""


def test_a_free_port_is_free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))
