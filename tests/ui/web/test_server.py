"""Serving: doors that stay shut, and a program that begins and ends cleanly."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import gradio as gr
import httpx
import pytest
from gradio import networking
from gradio.queueing import Queue

from backend.errors import SettingsError
from backend.settings import Settings
from tests.ui.app_process import free_port, start_app
from tests.ui.recordings import write_voice
from tests.ui.served_page import PATIENCE_SECONDS, examine, serve_page
from ui.layout import serve
from ui.tabs.voice.speak import SpeakForm
from ui.web import server
from ui.web.login_guard import is_open
from ui.web.uploads import UNUSED_SECONDS

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


def test_a_machine_that_is_slow_to_answer_is_no_reason_to_give_up(tmp_path, monkeypatch):
    monkeypatch.setattr(networking, "url_ok", lambda url: False)
    with serve_page(tmp_path) as page:
        assert httpx.get(page.address, timeout=PATIENCE_SECONDS).status_code == 200


def test_with_a_password_no_route_is_served_without_it(tmp_path):
    with (
        serve_page(tmp_path, auth="ann:secret") as page,
        httpx.Client(base_url=page.address, timeout=PATIENCE_SECONDS) as browser,
    ):
        served_file = tmp_path / "voice.wav"
        served_file.write_bytes(b"voice")
        asked = [("GET", f"/gradio_api/file={served_file}"), ("GET", "/gradio_api/nothing-yet")]
        for method, path in page.routes():
            path = re.sub(r"\{[^}]*\}", "x", path)
            asked += [] if is_open(path) else [(method, path)]
        assert len(asked) > 50
        for method, path in asked:
            assert browser.request(method, path).status_code == 401, (method, path)
        assert browser.post("gradio_api/upload", files={"files": ("a.wav", b"x")}).status_code == 401
        assert "ann" not in browser.get("gradio_api/user").text
        for cookie in ("", "x", "=;;", f"access-token-unsecure-{page.app.cookie_id}=x"):
            assert browser.get("config", headers={"Cookie": cookie}).status_code == 401
        assert browser.get("assets/../gradio_api/info").status_code in (401, 404)
        assert "components" not in browser.get("/").text.split("window.gradio_config")[-1][:2000]
        assert browser.post("login", data={"username": "ann", "password": "wrong"}).status_code == 400
        assert browser.get("config").status_code == 401
        assert browser.post("login", data={"username": "ann", "password": "secret"}).status_code == 200
        assert browser.get("config").status_code == 200
        assert browser.get(f"gradio_api/file={served_file}").content == b"voice"


def test_an_empty_queue_is_polled_a_few_times_a_second(tmp_path, monkeypatch):
    looks, long_enough = [], threading.Event()
    count = Queue.__len__

    def note(queue):
        looks.append(time.monotonic())
        if looks[-1] - looks[0] > 1.0:
            long_enough.set()
        return count(queue)

    monkeypatch.setattr(Queue, "__len__", note)
    with serve_page(tmp_path) as page:
        # The queue runs once somebody has come.
        page.session().close()
        assert long_enough.wait(60)
    assert len(looks) / (looks[-1] - looks[0]) <= 1.5 / server.IDLE_LOOK_SECONDS


def test_unused_uploads_are_removed_after_minutes(tmp_path):
    (tmp_path / "given").mkdir()
    given = write_voice(tmp_path / "given" / "used.wav", seconds=1.5)
    with serve_page(tmp_path) as page:
        session = page.session()
        examine(session, given)
        session.close()
        files = {"files": ("unused.wav", b"x" * 100)}
        answer = httpx.post(f"{page.address}gradio_api/upload", files=files, timeout=PATIENCE_SECONDS)
        unused = Path(answer.json()[0])
        (used,) = [path for path in tmp_path.rglob("used.wav") if path != given]
        broken_off = tmp_path / "tmp1234"
        broken_off.write_bytes(b"x")
        page.app.uploads.sweep()
        assert unused.exists()
        past = time.time() - UNUSED_SECONDS - 60
        for path in (used, unused, broken_off):
            os.utime(path, (past, past))
        page.app.uploads.sweep()
        assert not unused.exists()
        assert not broken_off.exists()
        assert used.exists()


def test_one_address_fills_half_of_the_queue_at_most(tmp_path, monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(SpeakForm, "missing", lambda form: ["wait"] if done.wait(PATIENCE_SECONDS) else [])
    with (
        serve_page(tmp_path, trusted_proxies=("127.0.0.1",)) as page,
        httpx.Client(base_url=page.address, timeout=PATIENCE_SECONDS) as browser,
    ):
        session = page.session()
        body = {
            "fn_index": session.number("speak"),
            "data": session.data("speak", {}, with_states=True),
            "session_hash": "crowd",
        }

        def join(address: str) -> int:
            headers = {"X-Forwarded-For": address}
            return browser.post("gradio_api/queue/join", json=body, headers=headers).status_code

        statuses = [join("203.0.113.7") for _ in range(server.MAX_QUEUED)]
        other = join("198.51.100.9")
        done.set()
        session.close()
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= server.MAX_QUEUED // 2 + 1
    assert other == 200


def test_pages_of_other_sites_may_not_use_it(tmp_path):
    """A site the person visits could otherwise read what is on localhost."""
    with serve_page(tmp_path) as page:
        answer = httpx.get(
            f"{page.address}config", headers={"Origin": "https://evil.example"}, timeout=PATIENCE_SECONDS
        )
        assert answer.headers.get("access-control-allow-origin") != "https://evil.example"
        assert answer.headers.get("access-control-allow-origin") != "*"


def test_nothing_is_reported_shared_or_kept_by_gradio(tmp_path, monkeypatch):
    for name in ("GRADIO_SHARE", "GRADIO_RUN_HISTORY", "GRADIO_MCP_SERVER"):
        monkeypatch.setenv(name, "True")
    with serve_page(tmp_path) as page:
        config = httpx.get(f"{page.address}config", timeout=PATIENCE_SECONDS).json()
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
        assert "Encore" in httpx.get(app.address, timeout=PATIENCE_SECONDS).text
        files = {"files": ("voice.wav", b"x" * 100)}
        path = httpx.post(f"{app.address}gradio_api/upload", files=files, timeout=PATIENCE_SECONDS).json()[0]
        assert path.startswith(str(tmp_path / "home" / "temporary"))
        assert app.end() == 0
        assert not list((tmp_path / "home" / "temporary").iterdir())
        assert app.log.read_text() == ""


def test_a_free_port_is_free():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))


def test_a_signal_that_a_library_handles_does_not_end_the_studio(monkeypatch):
    arrived, closed = [], []
    page = gr.Blocks()
    monkeypatch.setattr(page, "close", lambda verbose: closed.append(list(arrived)))
    before = {
        signal.SIGUSR1: signal.signal(signal.SIGUSR1, lambda number, frame: arrived.append(number)),
        signal.SIGTERM: signal.getsignal(signal.SIGTERM),
    }
    # One after the other, once the one before has been handled.
    sent = enumerate((signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM))
    timers = [threading.Timer(0.5 + seconds, os.kill, (os.getpid(), number)) for seconds, number in sent]
    try:
        for timer in timers:
            timer.start()
        server.wait_for_end(page)
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert closed == [[signal.SIGUSR1, signal.SIGUSR1]]
