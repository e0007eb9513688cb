"""`keys` from the command line: made once, listed without secrets, revoked; and what belongs to their tenants."""

from __future__ import annotations

import pytest

from backend.commands.parser import build_parser, run_command
from backend.errors import SettingsError
from backend.settings import Settings
from backend.store.home import Home
from backend.tenants.errors import TenantError
from backend.tenants.keys import ApiKeys, digest_of
from backend.voices.errors import VoiceNotFound
from tests.backend.serving.api.served import CONSENT
from tests.ui.recordings import write_voice


@pytest.fixture
def command(tmp_path, capsys):
    """Runs one command line in a home of its own, and returns what it printed."""
    settings = Settings(home=tmp_path / "home", max_voices=3)

    def run(name, *arguments):
        parsed = build_parser(settings, name).parse_args([name, *map(str, arguments)])
        assert run_command(parsed, settings) == 0
        return capsys.readouterr()

    return run


def test_a_key_is_shown_once_and_closes_the_api(command, tmp_path):
    first = command("keys", "add", "Alice", "--label", "the shop")
    assert "asks everybody for a key" in first.err
    assert "asks everybody" not in command("keys", "add").err
    key = first.out.strip()
    listed = command("keys", "list").out
    assert "alice\t" in listed
    assert "the shop" in listed
    assert key not in listed
    (made, own) = ApiKeys(Home(tmp_path / "home").database).list()
    assert (made.digest, own.tenant) == (digest_of(key), "")
    command("keys", "revoke", made.id)
    assert made.id not in command("keys", "list").out
    assert "revoked" in command("keys", "list", "--all").out
    # Other machines are let in with keys of whichever kind, and never without.
    exposed = Settings(home=tmp_path / "home", host="0.0.0.0")
    assert exposed.accepted_keys(has_others=ApiKeys.exist_in(exposed.home_folder)) == ()
    with pytest.raises(SettingsError, match="keys add"):
        exposed.accepted_keys(has_others=ApiKeys.exist_in(tmp_path / "other"))


def test_limits_are_said_for_one_tenant_and_taken_back(command):
    command("keys", "add", "alice")
    assert "max voices\t3 (as for all)" in command("keys", "limits", "alice").out
    changed = command("keys", "limits", "alice", "--characters-per-day", "100", "--max-voices", "none").out
    assert "characters per day\t100, 100 left today" in changed
    assert "max voices\tany number\n" in changed
    back = command("keys", "limits", "alice", "--max-voices", "default").out
    assert "max voices\t3 (as for all)" in back
    assert "characters per day\t100" in back
    with pytest.raises(TenantError, match="requests-per-minute"):
        command("keys", "limits", "alice", "--requests-per-minute", "0")
    with pytest.raises(TenantError, match="no tenant 'bob'"):
        command("keys", "limits", "bob")
    assert "3 (as for all)" in command("keys", "limits", "operator").out


def test_a_voice_is_given_to_a_tenant(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording = write_voice(tmp_path / "anna.wav", seconds=1.2)
    agreed = ("--consent", CONSENT.statement, "--consent-by", CONSENT.who)
    command("keys", "add", "alice")
    command("voices", "add", "Anna", "--recording", recording, *agreed)
    assert command("voices", "list", "--tenant", "alice").out == ""
    file = command("voices", "export", "Anna").out.strip()
    command("voices", "import", file, "--tenant", "alice")
    assert command("voices", "list", "--tenant", "alice").out.startswith("Anna\t")
    deleted = command("voices", "delete", "Anna", "--tenant", "alice").out
    assert "--tenant alice` undoes it" in deleted
    assert command("trash", "list").out == ""
    with pytest.raises(VoiceNotFound):
        command("voices", "delete", "Anna", "--tenant", "alice")
    assert command("voices", "list").out.startswith("Anna\t")
    command("trash", "restore", deleted.split("trash restore ")[1].split()[0], "--tenant", "alice")
    assert command("voices", "list", "--tenant", "alice").out.startswith("Anna\t")
    with pytest.raises(TenantError, match="no tenant 'alic'"):
        command("voices", "list", "--tenant", "alic")
