"""A share link: announced where it can be had, explained where not, never made with a program nobody published."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from gradio import networking, tunneling

from ui.web.share_link import ShareUnavailable, announce_link, open_link

LINK = "https://0123456789abcdef.gradio.live"


class SharedPage:
    """As much of a served page as a tunnel needs to know."""

    server_name, server_port, share_token = "127.0.0.1", 7860, "token"


class TunnelServer(BaseHTTPRequestHandler):
    """Tells where tunnels begin, as Gradio's does."""

    def do_GET(self) -> None:
        body = json.dumps([{"host": "127.0.0.1", "port": 1, "root_ca": "certificate"}]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def share_server(monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), TunnelServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(networking, "GRADIO_API_SERVER", f"http://127.0.0.1:{server.server_port}/")
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def frpc(tmp_path, monkeypatch):
    """A program that says what frpc says once the tunnel stands, and then stays."""
    program = tmp_path / "frpc"
    program.write_text(
        f"#!{sys.executable}\nprint('start proxy success: {LINK}', flush=True)\nimport time\ntime.sleep(600)\n"
    )
    program.chmod(0o755)
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tunneling, "BINARY_PATH", str(program))
    monkeypatch.setattr(tunneling, "CHECKSUMS", {tunneling.BINARY_URL: digest})
    yield program
    while tunneling.CURRENT_TUNNELS:
        tunnel = tunneling.CURRENT_TUNNELS.pop()
        process = tunnel.proc
        tunnel.kill()
        if process is not None:
            process.communicate()


def test_the_link_is_told_with_who_may_use_it(share_server, frpc, capsys):
    announce_link(SharedPage()).join()
    assert capsys.readouterr().out == f"Shared at {LINK} with everyone who has the link and the password.\n"


@pytest.mark.parametrize("missing", ["server", "program"])
def test_without_a_network_one_sentence_says_so_and_the_page_goes_on(frpc, monkeypatch, capsys, missing):
    if missing == "program":
        frpc.unlink()
        monkeypatch.setattr(tunneling, "BINARY_URL", "http://127.0.0.1:9/frpc")
        monkeypatch.setattr(tunneling, "BINARY_FOLDER", frpc.parent)
    monkeypatch.setattr(networking, "GRADIO_API_SERVER", "http://127.0.0.1:9/")
    announce_link(SharedPage()).join()
    said = capsys.readouterr().out
    assert said.startswith("encore: There is no share link: ")
    assert said.endswith("The page goes on working on this machine.\n")
    assert said.count("\n") == 1


def test_an_unpublished_program_is_removed_and_not_run(share_server, frpc):
    frpc.write_text("#!/bin/sh\necho surprise\n")
    with pytest.raises(ShareUnavailable, match="not the published program"):
        open_link(SharedPage())
    assert not frpc.exists()
