"""The registry: what is created is there, whole, under its name, with its consent; what fails leaves nothing."""

from __future__ import annotations

import json
import os
import time
import wave
from concurrent.futures import ThreadPoolExecutor

import pytest

from backend.audio.writing import write_wav
from backend.errors import CheckpointError, RecordingError
from backend.provenance.errors import RecordingSynthetic
from backend.provenance.statement import SpeechStatement
from backend.store.errors import TrashNameTaken
from backend.store.home import Home
from backend.store.trash import Trash
from backend.voices.consent import Consent, hash_of_file
from backend.voices.errors import ConsentMissing, VoiceError, VoiceNameInvalid, VoiceNameTaken, VoiceNotFound
from backend.voices.registry import Voices
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import RATE, speak_like, write_broken, write_voice
from training.model.sampling_settings import Sampling


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def voices(home):
    return Voices(Home(home))


@pytest.fixture
def recording(tmp_path):
    return write_voice(tmp_path / "anna.wav", seconds=1.5)


CONSENT = Consent.give("Anna Example", "own-voice")


def test_a_zero_shot_voice_is_there_after_a_restart(voices, home, recording):
    made = voices.create_zero_shot(
        " Änne  Müller ", recording, consent=CONSENT, model="mini", transcript=" Hello. ", language="English",
        sampling=Sampling(temperature=0.5),
    )  # fmt: skip
    found = Voices(Home(home)).get("änne müller")
    assert found == made
    assert found.name == "Änne Müller"
    assert (found.kind, found.language, found.transcript) == ("zero-shot", "english", "Hello.")
    assert found.sampling == Sampling(temperature=0.5)
    assert found.consent == CONSENT.bound_to(hash_of_file(recording))
    assert voices.get(found.id) == made
    with wave.open(str(found.reference), "rb") as stored:
        assert (stored.getframerate(), stored.getnchannels(), stored.getsampwidth()) == (24_000, 1, 2)
        assert stored.getnframes() == 36_000


def test_several_recordings_become_one_reference(voices, recording, tmp_path):
    other = write_voice(tmp_path / "more.wav", seconds=2.0)
    voice = voices.create_zero_shot("Both", [recording, other], consent=CONSENT, model="mini")
    with wave.open(str(voice.reference), "rb") as stored:
        assert stored.getnframes() == round(24_000 * (1.5 + 0.3 + 2.0))
    assert voice.provenance["recordings"] == ["anna.wav", "more.wav"]


def test_no_voice_without_consent(voices, home, recording):
    with pytest.raises(ConsentMissing, match="consent"):
        voices.create_zero_shot("Anna", recording, consent=None, model="mini")
    with pytest.raises(ConsentMissing, match="consent"):
        voices.add_fine_tuned("Anna", {"custom_voice": GOLDEN_CHECKPOINT}, consent=None, model="mini")
    assert voices.list() == ()


def test_a_recording_that_is_none_leaves_nothing_behind(voices, tmp_path):
    with pytest.raises(RecordingError):
        voices.create_zero_shot("Anna", write_broken(tmp_path / "broken.wav"), consent=CONSENT, model="mini")
    with pytest.raises(VoiceError, match="recording"):
        voices.create_zero_shot("Anna", [], consent=CONSENT, model="mini")
    assert voices.list() == ()
    assert list(voices.folder.iterdir()) == []


@pytest.mark.parametrize("name", ["", "   ", "a" * 65, "a/b", "..", "-a", "a\0b", "<b>", "a\u202eb", "😀"])
def test_names_that_are_none(voices, recording, name):
    with pytest.raises(VoiceNameInvalid):
        voices.create_zero_shot(name, recording, consent=CONSENT, model="mini")


@pytest.mark.parametrize("name", ["李小龍", "Zoë O'Brien", "हिन्दी", "voice_2 (old)", "Ω-1"])
def test_names_of_all_scripts(voices, recording, name):
    assert voices.create_zero_shot(name, recording, consent=CONSENT, model="mini").name == name


def test_a_name_is_taken_in_any_case(voices, recording):
    anna = voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini")
    with pytest.raises(VoiceNameTaken, match="ANNA"):
        voices.create_zero_shot("ANNA", recording, consent=CONSENT, model="mini")
    ben = voices.create_zero_shot("Ben", recording, consent=CONSENT, model="mini")
    with pytest.raises(VoiceNameTaken):
        voices.rename("Ben", "anna")
    assert voices.list() == (anna, ben)


def test_of_two_concurrent_creations_with_one_name_one_succeeds(voices, recording):
    def create(_):
        try:
            return voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini")
        except VoiceNameTaken:
            return None

    with ThreadPoolExecutor(4) as pool:
        made = [voice for voice in pool.map(create, range(4)) if voice]
    assert voices.list() == tuple(made)
    assert len(made) == 1
    assert [folder.name for folder in voices.folder.iterdir()] == [made[0].id]


def test_rename_delete_and_restore(voices, home, recording):
    anna = voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini")
    assert voices.rename("anna", "ANNA").name == "ANNA"
    assert voices.rename("Anna", "Ben").id == anna.id
    assert voices.get("Ben").reference == anna.reference
    with pytest.raises(VoiceNotFound, match="'Anna'"):
        voices.get("Anna")
    before = voices.get("Ben")
    assert before.consent == CONSENT.bound_to(hash_of_file(recording))
    deleted = voices.delete("ben")
    assert voices.list() == ()
    with voices._database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM consents").fetchone()[0] == 0
    assert not anna.folder.exists(), "servers notice by it"
    other = voices.create_zero_shot("Ben", recording, consent=CONSENT, model="mini")
    with pytest.raises(TrashNameTaken, match="another voice called 'Ben'"):
        Trash(Home(home)).restore(deleted.id)
    voices.rename(other.id, "Cleo")
    Trash(Home(home)).restore(deleted.id)
    assert voices.get("Ben") == before
    assert before.reference.is_file()
    Trash(Home(home)).purge(voices.delete("ben").id)
    assert not anna.folder.exists()
    for verb in (voices.get, voices.delete, lambda name: voices.rename(name, "C")):
        with pytest.raises(VoiceNotFound):
            verb("Ben")


def test_a_language_that_is_none(voices, recording):
    with pytest.raises(VoiceError, match="language"):
        voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini", language="../x")


def test_a_fine_tuned_voice_outlives_its_run(voices, recording, tmp_path):
    checkpoint = fine_tuned_checkpoint(tmp_path / "run" / "custom_voice")
    (checkpoint / "notes.log").write_text("not part of the model")
    voice = voices.add_fine_tuned(
        "Anna", {"custom_voice": checkpoint}, consent=CONSENT, model="mini", run_id="r1", reference=recording,
        transcript="Hello.", provenance={"digest": "abc"},
    )  # fmt: skip
    expected = {
        path.relative_to(checkpoint) for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".log"
    }
    for path in sorted(checkpoint.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    found = voices.get("Anna")
    assert found == voice
    folder = found.variants["custom_voice"]
    assert {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == expected
    assert (folder / "model.safetensors").stat().st_size > 1_000_000
    assert found.reference is not None


def test_a_checkpoint_in_the_wrong_place_is_refused(voices, tmp_path, recording):
    with pytest.raises(VoiceError, match="base one"):
        voices.add_fine_tuned("Anna", {"custom_voice": GOLDEN_CHECKPOINT}, consent=CONSENT, model="mini")
    with pytest.raises(CheckpointError):
        voices.add_fine_tuned("Anna", {"custom_voice": tmp_path / "gone"}, consent=CONSENT, model="mini")
    with pytest.raises(VoiceError, match="reference"):
        voices.add_fine_tuned("Anna", {"base": GOLDEN_CHECKPOINT}, consent=CONSENT, model="mini")
    voice = voices.add_fine_tuned(
        "Anna", {"base": GOLDEN_CHECKPOINT}, consent=CONSENT, model="mini", reference=recording
    )
    assert list(voice.variants) == ["base"]


def test_what_a_killed_process_left_is_removed_soon(voices, recording):
    old, new = voices.folder / "old", voices.folder / "new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "reference.wav").write_bytes(b"x")
    an_hour_ago = time.time() - 3600
    os.utime(old, (an_hour_ago, an_hour_ago))
    anna = voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini")
    os.utime(anna.folder, (an_hour_ago, an_hour_ago))
    voices.sweep()
    assert not old.exists()
    assert new.exists()
    assert anna.folder.exists()


def test_the_consent_can_be_read_without_this_program(voices, recording):
    voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini")
    with voices._database.reading() as connection:
        row = connection.execute("SELECT * FROM consents").fetchone()
        record = json.loads(connection.execute("SELECT record FROM voices").fetchone()["record"])
    assert (row["who"], row["statement"], row["wording"]) == (CONSENT.who, "own-voice", CONSENT.wording)
    assert row["given_at"].endswith("+00:00")
    assert "consent" not in record


def test_a_voice_whose_record_cannot_be_stored_leaves_no_folder(voices, recording):
    with pytest.raises(Exception, match="surrogate"):
        voices.create_zero_shot("Anna", recording, consent=CONSENT, model="mini", provenance={"from": "\ud800"})
    assert list(voices.folder.iterdir()) == []
    assert voices.list() == ()


def test_a_recording_that_encore_made_is_asked_about(voices, tmp_path):
    path = tmp_path / "made.wav"
    write_wav(path, speak_like(2.0), RATE, SpeechStatement().as_comment())
    with pytest.raises(RecordingSynthetic, match="made by Encore"):
        voices.create_zero_shot("Copy", path, consent=CONSENT, model="mini")
    assert voices.list() == ()
    assert voices.create_zero_shot("Copy", path, consent=CONSENT, model="mini", accept_synthetic=True).name == "Copy"
