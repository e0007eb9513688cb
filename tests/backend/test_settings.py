"""Settings: what the environment may say, and who may reach the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.errors import SettingsError
from backend.settings import Settings


def test_the_environment_changes_single_settings():
    environment = {"ENCORE_PORT": "8000", "ENCORE_HOME": "/tmp/x", "PATH": "/bin", "ENCORE_UNKNOWN": "1"}
    settings = Settings.from_environment(environment)
    assert (settings.port, str(settings.home), settings.model) == (8000, "/tmp/x", "mini")


def test_a_value_that_is_not_allowed_is_named():
    with pytest.raises(SettingsError, match="ENCORE_PORT is '99999'"):
        Settings.from_environment({"ENCORE_PORT": "99999"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_this_machine_alone_needs_no_password(host):
    assert Settings(host=host).credentials() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "studio.example.org", ""])
def test_other_machines_need_one(host):
    with pytest.raises(SettingsError, match="ENCORE_AUTH=user:password"):
        Settings(host=host).credentials()
    exposed = Settings.from_environment({"ENCORE_HOST": host, "ENCORE_AUTH": "ann:se:cret"})
    assert exposed.credentials() == ("ann", "se:cret")


def test_a_password_is_asked_for_on_this_machine_too_if_set():
    assert Settings.from_environment({"ENCORE_AUTH": "ann:secret"}).credentials() == ("ann", "secret")


@pytest.mark.parametrize("auth", ["", "ann", ":secret", "ann:"])
def test_half_a_password_is_none_and_is_not_repeated(auth):
    with pytest.raises(SettingsError, match="not of the form") as caught:
        Settings.from_environment({"ENCORE_AUTH": auth}).credentials()
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown_with_the_settings():
    assert "secret" not in repr(Settings.from_environment({"ENCORE_AUTH": "ann:secret"}))


def test_files_are_stored_in_the_given_home_or_in_the_users_home(tmp_path: Path) -> None:
    assert Settings(home=tmp_path).home_folder == tmp_path
    assert Settings().home_folder == Path.home() / ".encore"


def test_a_storage_is_named_by_its_url():
    assert Settings.from_environment({"ENCORE_STORAGE": "s3://bucket/prefix/"}).storage == "s3://bucket/prefix"
    assert Settings.from_environment({"ENCORE_STORAGE": ""}).storage is None
    with pytest.raises(SettingsError, match=r"ENCORE_STORAGE is 'bucket': .*s3://bucket/prefix"):
        Settings.from_environment({"ENCORE_STORAGE": "bucket"})
