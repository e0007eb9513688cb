"""What web pages of other sites send to the studio, and what a log in leaves behind, as a second process sees it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.ui.app_process import AppProcess, start_app
from tests.ui.raw_http import Reply, connect, head_of, read_reply, request

NO_MODEL = "/no/such/folder"
EVIL = "evil.example"
STUDIO = "studio.example.org"
UPLOAD = "/gradio_api/upload"


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    settings = {"ALLOWED_HOSTS": f"{STUDIO}, other.example:8443"}
    with start_app(tmp_path_factory.mktemp("open") / "home", model=NO_MODEL, **settings) as started:
        yield started


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    settings = {"AUTH": "ann:secret", "ALLOWED_HOSTS": STUDIO, "TRUSTED_PROXIES": "127.0.0.1"}
    with start_app(tmp_path_factory.mktemp("locked") / "home", model=NO_MODEL, **settings) as started:
        yield started


def netloc(app: AppProcess) -> str:
    return urlsplit(app.address).netloc


def port(app: AppProcess) -> int:
    return urlsplit(app.address).port or 80


def form(**fields: str) -> tuple[bytes, str]:
    lines = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    ]
    return ("".join(lines) + "--b--\r\n").encode(), "multipart/form-data; boundary=b"


def upload(content: bytes) -> tuple[bytes, str]:
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\n'
    return head + content + b"\r\n--b--\r\n", "multipart/form-data; boundary=b"


def log_in(app: AppProcess, password: str, **headers: str) -> Reply:
    body, kind = form(username="ann", password=password)
    return request(app.address, "/login", method="POST", body=body, content_type=kind, **headers)


def stored(home: Path) -> list[Path]:
    return [path for path in (home / "temporary").rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.parametrize("path", ["/", "/config", "/gradio_api/info", "/gradio_api/queue/data?session_hash=x"])
def test_a_foreign_host_name_is_refused(app, path):
    reply = request(app.address, path, host=f"{EVIL}:{port(app)}")
    assert reply.status == 403
    assert b"ENCORE_ALLOWED_HOSTS" in reply.body
    assert b"components" not in reply.body


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "studio.localhost", STUDIO, STUDIO.upper()])
def test_names_of_this_machine_and_of_its_operator_are_answered(app, name):
    assert request(app.address, "/config", host=name).status == 200
    assert request(app.address, "/config", host=f"{name}:{port(app)}").status == 200


def test_a_name_with_a_port_is_allowed_with_that_port(app):
    assert request(app.address, "/config", host="other.example:8443").status == 200
    assert request(app.address, "/config", host="other.example:1234").status == 403


@pytest.mark.parametrize("value", ["[", "a b", "::1", "[::1", "localhost:x", "localhost:99999", "a/b", "é", "x@y"])
def test_a_malformed_host_is_a_bad_request(app, locked, value):
    for one in (app, locked):
        assert request(one.address, "/config", host=value).status == 400


def test_no_host_or_two_are_a_bad_request(app):
    assert request(app.address, "/config", host=None).status == 400
    with connect(app.address) as connection:
        headers = [("Host", netloc(app)), ("Host", "localhost"), ("Connection", "close")]
        connection.sendall(head_of("GET", "/config", headers))
        assert read_reply(connection).status == 400


@pytest.mark.parametrize("value", ["[", "x", "http://[", "http://a b", "://", "http://a:b:c"])
def test_a_malformed_origin_is_a_bad_request(app, locked, value):
    for one in (app, locked):
        assert request(one.address, "/config", origin=value).status == 400


@pytest.mark.parametrize(
    "origin", [f"https://{EVIL}", "null", "http://localhost:1", "http://127.0.0.1", f"http://{STUDIO}:81"]
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/gradio_api/queue/join"), ("GET", "/config"), ("POST", "/login")]
)
def test_pages_of_other_origins_are_refused_with_and_without_a_password(app, locked, method, path, origin):
    for one in (app, locked):
        reply = request(one.address, path, method=method, body=b"{}" if method == "POST" else b"", origin=origin)
        assert reply.status == 403
        assert reply.header("access-control-allow-origin") is None
        assert reply.header("access-control-allow-credentials") is None


def test_its_own_page_is_let_in_also_behind_a_proxy_that_renames_it(app):
    assert request(app.address, "/config", origin=f"http://{netloc(app)}").status == 200
    assert request(app.address, "/config", host=STUDIO, origin=f"https://{STUDIO}").status == 200
    assert request(app.address, "/config", origin=f"https://{STUDIO}").status == 200


def test_a_preflight_of_another_site_learns_nothing(locked):
    headers = {"origin": f"https://{EVIL}", "access_control_request_method": "POST"}
    reply = request(locked.address, "/gradio_api/queue/join", method="OPTIONS", host=STUDIO, **headers)
    assert reply.status == 403
    assert not [name for name, _ in reply.headers if name.startswith("access-control")]


def test_pictures_and_scripts_of_other_pages_load_nothing_and_links_lead_here(app):
    assert request(app.address, "/config", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403
    assert request(app.address, "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert request(app.address, "/config", sec_fetch_site="same-origin", sec_fetch_mode="cors").status == 200


@pytest.mark.parametrize("url", ["http://127.0.0.1:9file:///etc/passwd", "https://a.hf.space/x", "http://[", ""])
def test_nothing_is_fetched_from_other_sites(app, url):
    """Some of these were faults, with a traceback in the log."""
    reply = request(app.address, f"/gradio_api/proxy={url}")
    assert (reply.status, json.loads(reply.body)) == (400, {"detail": "This page fetches nothing from other sites."})


def test_a_fault_has_a_body_that_says_so_and_no_more(app):
    body = json.dumps({"fn_index": 10**6, "data": [], "session_hash": "x"}).encode()
    reply = request(app.address, "/gradio_api/queue/join", method="POST", body=body, content_type="application/json")
    assert reply.status == 500
    assert json.loads(reply.body) == {"detail": "An internal error. See the log for details."}


def test_an_upload_of_another_page_is_refused_before_it_is_sent(app):
    body, kind = upload(b"x" * 1000)
    assert request(app.address, UPLOAD, method="POST", body=body, content_type=kind).status == 200
    before = stored(app.log.parent)
    assert len(before) == 1
    with connect(app.address) as connection:
        headers = [("Host", netloc(app)), ("Origin", f"https://{EVIL}"), ("Content-Type", kind)]
        connection.sendall(head_of("POST", UPLOAD, [*headers, ("Content-Length", str(5 * 2**20))]))
        # Nothing of the body has been sent.
        assert read_reply(connection).status == 403
    assert stored(app.log.parent) == before


def test_the_cookie_goes_to_this_page_alone(locked):
    reply = log_in(locked, "secret")
    assert reply.status == 200
    (cookie,) = reply.cookies()
    assert cookie.startswith("access-token-unsecure-")
    assert "SameSite=Lax" in cookie
    assert "HttpOnly" in cookie
    assert "Secure" not in cookie
    own = cookie.partition(";")[0]
    assert request(locked.address, "/config", cookie=own).status == 200
    # The same visitor, whose browser shows another page that asks.
    assert request(locked.address, "/config", cookie=own, origin=f"https://{EVIL}").status == 403


def test_behind_tls_the_cookie_is_never_sent_without_it(locked):
    (cookie,) = log_in(locked, "secret", x_forwarded_proto="https", host=STUDIO).cookies()
    assert cookie.startswith("access-token-")
    assert not cookie.startswith("access-token-unsecure-")
    assert "SameSite=Lax" in cookie
    assert "Secure" in cookie
    assert request(locked.address, "/config", host=STUDIO, cookie=cookie.partition(";")[0]).status == 200


def test_logging_out_takes_more_than_an_address(locked):
    own = log_in(locked, "secret").cookies()[0].partition(";")[0]
    for path in ("/logout", "/logout/"):
        assert request(locked.address, path, cookie=own).status == 405
    assert request(locked.address, "/logout", method="POST", cookie=own, origin=f"https://{EVIL}").status == 403
    assert request(locked.address, "/config", cookie=own).status == 200
    assert request(locked.address, "/logout", method="POST", cookie=own).status == 302
    assert request(locked.address, "/config", cookie=own).status == 401


def test_wrong_passwords_slow_down_only_their_sender(locked):
    guesser, other = {"x_forwarded_for": "203.0.113.7"}, {"x_forwarded_for": "198.51.100.9"}
    replies = [log_in(locked, f"guess-{number}", **guesser) for number in range(40)]
    assert replies[0].status == 400
    assert replies[-1].status == 429
    assert sum(reply.status == 400 for reply in replies) <= 8
    assert int(replies[-1].header("retry-after") or "0") >= 1
    assert b"Try again in" in replies[-1].body
    # Not even the right one helps meanwhile; elsewhere it does.
    assert log_in(locked, "secret", **guesser).status == 429
    assert log_in(locked, "secret", **other).status == 200


def test_a_login_form_that_is_none_is_a_bad_request(locked):
    elsewhere = {"x_forwarded_for": "192.0.2.1"}
    broken = request(
        locked.address,
        "/login",
        method="POST",
        body=b"--b\r\nx",
        content_type="multipart/form-data; boundary=b",
        **elsewhere,
    )
    assert broken.status in (400, 422)
    large, kind = form(username="ann", password="x" * 100_000)
    assert request(locked.address, "/login", method="POST", body=large, content_type=kind, **elsewhere).status == 413


def test_no_proxy_is_believed_that_was_not_named(tmp_path):
    with start_app(tmp_path / "home", model=NO_MODEL, AUTH="ann:secret") as app:
        (cookie,) = log_in(app, "secret", x_forwarded_proto="https").cookies()
        assert "Secure" not in cookie
        replies = [log_in(app, "wrong", x_forwarded_for=f"203.0.113.{number}") for number in range(10)]
        assert replies[-1].status == 429


def test_uploads_together_have_a_bound_that_is_said(tmp_path):
    with start_app(tmp_path / "home", model=NO_MODEL, MAX_UPLOAD_GB="0.001") as app:
        body, kind = upload(b"x" * 600_000)
        send = {"method": "POST", "body": body, "content_type": kind}
        assert request(app.address, UPLOAD, **send).status == 200
        full = request(app.address, UPLOAD, **send)
        assert full.status == 507
        assert "ENCORE_MAX_UPLOAD_GB" in json.loads(full.body)["detail"]
        larger, kind = upload(b"x" * 2_000_000)
        assert request(app.address, UPLOAD, method="POST", body=larger, content_type=kind).status == 413
        unknown = {"transfer_encoding": "chunked", "content_type": kind}
        assert request(app.address, UPLOAD, method="POST", **unknown).status == 411
        assert len(stored(tmp_path / "home")) == 1
