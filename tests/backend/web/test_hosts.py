"""Which names lead here, and which only look like it."""

from __future__ import annotations

import pytest

from backend.errors import SettingsError
from backend.settings import Settings
from backend.web.hosts import AllowedHosts, Authority, parse_authority, parse_origin


def serves(hosts: AllowedHosts, name: str) -> bool:
    host = parse_authority(name)
    return host is not None and hosts.serves(host)


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("localhost", Authority("localhost", None)),
        ("LOCALHOST.:7860", Authority("localhost", 7860)),
        ("[::1]:80", Authority("::1", None)),
        ("a_b.example:443", Authority("a_b.example", None)),
        ("[", None), ("", None), ("[::1", None), ("::1", None), ("a:b", None), ("a:0", None), ("a:65536", None),
        ("a b", None), ("a/b", None), ("a..b", None), ("u@a", None), ("a" * 300, None), ("ä", None),
    ],
)  # fmt: skip
def test_hosts_are_read_or_malformed(text, authority):
    assert parse_authority(text) == authority


def test_origins_are_read_or_malformed():
    assert parse_origin("https://a.example") == Authority("a.example", None)
    assert parse_origin("chrome-extension://abc") == Authority("abc", None)
    for text in ("[", "null", "a.example", "http://[", "http://", "://a"):
        assert parse_origin(text) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "192.168.1.5", "studio.example", "0.0.0.0", "::"])
def test_loopback_names_always_lead_here_and_lookalikes_never(host):
    hosts = AllowedHosts(host)
    for name in ("localhost", "127.0.0.1:7860", "127.1.2.3", "[::1]:7860", "a.localhost"):
        assert serves(hosts, name), name
    for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost"):
        assert not serves(hosts, name), name


def test_the_configured_host_leads_here():
    assert serves(AllowedHosts("192.168.1.5"), "192.168.1.5:7860")
    assert not serves(AllowedHosts("192.168.1.5"), "192.168.1.6")
    # An address cannot be led elsewhere by anybody's name server.
    assert serves(AllowedHosts("0.0.0.0"), "192.168.1.6:7860")
    assert not serves(AllowedHosts("127.0.0.1"), "192.168.1.6:7860")


def test_an_origin_is_own_with_its_port():
    hosts = AllowedHosts("127.0.0.1", ["studio.example"])
    here = Authority("127.0.0.1", 7860)
    assert hosts.is_own(here, here)
    assert hosts.is_own(Authority("studio.example", None), here)
    for other in (Authority("127.0.0.1", None), Authority("studio.example", 81), Authority("localhost", 7860)):
        assert not hosts.is_own(other, here)


def test_names_come_from_the_environment():
    settings = Settings.from_environment({"ENCORE_ALLOWED_HOSTS": " a.example, b.example:81 ,"})
    assert settings.allowed_hosts == ("a.example", "b.example:81")
    for name, value in (("ALLOWED_HOSTS", "a b"), ("ALLOWED_HOSTS", "http://a"), ("TRUSTED_PROXIES", "proxy")):
        with pytest.raises(SettingsError, match=f"ENCORE_{name}"):
            Settings.from_environment({f"ENCORE_{name}": value})
