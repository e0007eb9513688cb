"""Each installation has a key of its own, and its operator alone decides whether anything is marked."""

from __future__ import annotations

import logging
import stat

import pytest

from backend.doctor.checks import check_watermark
from backend.doctor.finding import Level
from backend.errors import SettingsError
from backend.settings import Settings
from backend.store.errors import StoreError
from backend.store.home import Home
from backend.watermark.installation import KEY_BYTES, KEY_FILE, SETTINGS_FILE, installation_key, mark_of

REASON = "Our broadcaster marks everything itself."


def test_a_key_is_made_once_and_is_for_its_user_alone(home_folder):
    home = Home(home_folder)
    key = installation_key(home)
    assert len(key) == KEY_BYTES
    assert installation_key(Home(home_folder)) == key
    assert stat.S_IMODE((home_folder / KEY_FILE).stat().st_mode) == 0o600
    assert sorted(path.name for path in home_folder.glob("*.partial")) == []


def test_two_installations_have_different_keys(tmp_path):
    assert installation_key(Home(tmp_path / "one")) != installation_key(Home(tmp_path / "two"))


def test_a_damaged_key_is_an_error_rather_than_a_new_key(home_folder):
    home = Home(home_folder)
    installation_key(home)
    (home_folder / KEY_FILE).write_bytes(b"short")
    with pytest.raises(StoreError, match="damaged"):
        installation_key(home)


def test_speech_is_marked_unless_the_settings_file_says_why_not(home_folder, caplog):
    home = Home(home_folder)
    mark = mark_of(home)
    assert mark.marker(24_000, 1) is not None
    assert mark.payload_of(("text", "seed")) == mark_of(home).payload_of(("text", "seed"))
    assert check_watermark(Settings(home=home_folder)).level is Level.GOOD
    (home_folder / SETTINGS_FILE).write_text(f'{{"watermark_off": "{REASON}"}}')
    with caplog.at_level(logging.WARNING):
        mark = mark_of(home)
    assert REASON in caplog.text
    assert mark.marker(24_000, 1) is None
    assert mark.payload_of(("text", "seed")) is None
    finding = check_watermark(Settings(home=home_folder))
    assert finding.level is Level.LIMITED
    assert REASON in finding.found


@pytest.mark.parametrize("content", ['{"watermark_off": ""}', '{"watermark_off": true}', '{"watermark": "off"}', "off"])
def test_without_a_reason_it_stays_on_and_says_what_is_wrong(home_folder, content):
    home = Home(home_folder)
    (home_folder / SETTINGS_FILE).write_text(content)
    with pytest.raises(SettingsError, match=SETTINGS_FILE):
        mark_of(home)
    assert check_watermark(Settings(home=home_folder)).level is Level.BROKEN


def test_the_key_does_not_show(home_folder):
    mark = mark_of(Home(home_folder))
    assert str(installation_key(Home(home_folder))) not in repr(mark)
    assert "**" in mark.model_dump_json()
