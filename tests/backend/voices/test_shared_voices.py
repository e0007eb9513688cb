"""Voices of one home are found, spoken from and gone in another one that shares nothing with it but a storage."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.store.home import Home
from backend.voices.consent import Consent
from backend.voices.errors import VoiceNotFound
from backend.voices.publisher import VoicePublisher
from backend.voices.registry import Voices
from backend.voices.shared_voices import PublishedVoices, SharedVoices
from backend.voices.voice import Voice
from backend.voices.voice_index import INDEX_NAME, stored_voice
from tests.ui.recordings import write_voice
from training.errors import StorageDamaged
from training.model.checkpoint.hashes import find_damage
from training.storage.folders import list_folders, read_manifest
from training.storage.location import StorageLocation
from training.storage.objects import ObjectStore

CONSENT = Consent.give("Anna Example", "own-voice")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "shared").mkdir()
    return ObjectStore(StorageLocation("file", str(tmp_path / "shared")), patience_seconds=0)


@pytest.fixture
def voices(tmp_path: Path) -> Voices:
    return Voices(Home(tmp_path / "studio"))


@pytest.fixture
def publisher(tmp_path: Path, voices: Voices, store: ObjectStore) -> VoicePublisher:
    return VoicePublisher(voices, store, tmp_path / "studio")


@pytest.fixture
def anna(tmp_path: Path, voices: Voices) -> Voice:
    recording = write_voice(tmp_path / "anna.wav", seconds=1.5)
    return voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini")


@pytest.fixture
def server(tmp_path: Path, store: ObjectStore) -> SharedVoices:
    """An API server's, which believes nothing older than this moment."""
    home = Home(tmp_path / "server")
    return SharedVoices(home, PublishedVoices(store, home.folder, fresh_seconds=0))


def wait_for(what: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + 20
    while not what():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_a_voice_is_there_with_its_consent_and_its_files(
    publisher: VoicePublisher, anna: Voice, server: SharedVoices
) -> None:
    assert server.list() == ()
    assert publisher.publish()
    found = server.get("anna")
    assert found.record == anna.record
    assert found.folder != anna.folder
    assert found.reference is not None
    assert anna.reference is not None
    assert found.reference.read_bytes() == anna.reference.read_bytes()
    assert find_damage(found.folder) == []
    assert server.get(anna.id) == found
    assert server.list() == (found,)


def test_what_is_changed_in_the_studio_is_changed_on_the_server(
    publisher: VoicePublisher, voices: Voices, anna: Voice, server: SharedVoices, store: ObjectStore
) -> None:
    publisher.publish()
    copy = server.get("Anna")
    voices.rename("Anna", "Anne")
    publisher.publish()
    assert server.get("Anne").id == anna.id
    with pytest.raises(VoiceNotFound):
        server.get("Anna")
    deleted = voices.delete("Anne")
    publisher.publish()
    with pytest.raises(VoiceNotFound):
        server.get("Anne")
    assert not copy.folder.exists(), "by its missing folder a server notices that a voice is gone"
    assert list_folders(store, "voices") == []
    voices.trash.restore(deleted.id)
    publisher.publish()
    assert server.get("Anne").id == anna.id


def test_nothing_is_sent_where_nothing_changed(
    publisher: VoicePublisher, anna: Voice, store: ObjectStore, tmp_path: Path
) -> None:
    publisher.publish()
    shutil.move(tmp_path / "shared", tmp_path / "unmounted")
    assert publisher.publish()


def test_only_the_home_that_began_publishes(
    publisher: VoicePublisher, anna: Voice, store: ObjectStore, tmp_path: Path
) -> None:
    publisher.publish()
    other = Voices(Home(tmp_path / "other"))
    other.create_zero_shot("Bea", write_voice(tmp_path / "bea.wav", seconds=1.5), consent=CONSENT, model="mini")
    assert not VoicePublisher(other, store, tmp_path / "other").publish()
    assert list_folders(store, "voices") == [anna.id]
    # Its own voices it has all the same, and none of itself is read back as somebody else's.
    shared = SharedVoices(Home(tmp_path / "other"), PublishedVoices(store, tmp_path / "other"))
    wait_for(lambda: {voice.name for voice in shared.list()} == {"Anna", "Bea"})
    own = SharedVoices(Home(tmp_path / "studio"), PublishedVoices(store, tmp_path / "studio"))
    assert [voice.folder for voice in own.list()] == [anna.folder]


def test_an_empty_home_does_not_take_the_place_of_the_one_with_voices(
    publisher: VoicePublisher, anna: Voice, store: ObjectStore, tmp_path: Path
) -> None:
    VoicePublisher(Voices(Home(tmp_path / "server")), store, tmp_path / "server").publish()
    assert store.read(INDEX_NAME) is None
    assert publisher.publish()


def test_tenants_have_none_of_the_published_ones(publisher: VoicePublisher, anna: Voice, server: SharedVoices) -> None:
    publisher.publish()
    assert server.of_tenant("").get("Anna").id == anna.id
    assert server.of_tenant("somebody").list() == ()
    with pytest.raises(VoiceNotFound):
        server.of_tenant("somebody").get("Anna")


def test_a_damaged_file_is_not_spoken_with(
    publisher: VoicePublisher, anna: Voice, server: SharedVoices, store: ObjectStore
) -> None:
    publisher.publish()
    manifest = read_manifest(store, stored_voice(anna.id))
    assert manifest is not None
    store.write(f"{stored_voice(anna.id)}/{manifest.files['reference.wav'].sha256}", b"RIFF")
    with pytest.raises(StorageDamaged, match=r"reference\.wav .* is not what was stored"):
        server.get("Anna")
    assert server.list() == ()


def test_the_background_does_it_within_seconds(publisher: VoicePublisher, anna: Voice, store: ObjectStore) -> None:
    has_ended = publisher.keep_publishing()
    try:
        wait_for(lambda: store.read(INDEX_NAME) is not None)
    finally:
        has_ended.set()
