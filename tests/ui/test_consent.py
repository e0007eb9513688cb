"""What was stated on the page counts for the recordings it was stated for, and for no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.audio.quality import ReferenceReport
from backend.voices.consent import STATEMENTS, SpokenProof, hash_of_file
from backend.voices.errors import ConsentInvalid, ConsentMissing
from ui.consent import Stated, read_consent, sign
from ui.fields import statement_choices
from ui.source import Reference, Source
from ui.words.words import spoken_to


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return recording(tmp_path, "ann")


def recording(folder: Path, name: str) -> Source:
    path = folder / f"{name}.wav"
    path.write_bytes(name.encode())
    return Source(kind="recording", name=name, reference=path, preview=path)


def proof(source: Source) -> SpokenProof:
    assert source.reference is not None
    content = hash_of_file(source.reference)
    return SpokenProof(phrase="I agree.", heard="I agree", error_rate=0.0, similarity=0.9, recording=content)


def test_a_consent_is_for_the_recording_it_was_stated_for(source):
    given = Stated(statement="own-voice", who="Ann", proof=proof(source), source=source, signed=sign(source)).read()
    assert given.given_for == hash_of_file(source.reference)
    assert given.spoken == proof(source)


def test_what_was_stated_for_one_recording_does_not_sign_another(source, tmp_path):
    other = recording(tmp_path, "ben")
    stated = Stated(statement="own-voice", who="Ann", source=other, signed=sign(source))
    with pytest.raises(ConsentMissing, match="stated for another recording"):
        stated.read()
    assert stated.by_content == {}


def test_what_was_read_aloud_for_one_recording_does_not_prove_another(source, tmp_path):
    other = recording(tmp_path, "ben")
    with pytest.raises(ConsentInvalid, match="spoken for another recording"):
        Stated(statement="own-voice", who="Ann", proof=proof(source), source=other, signed=sign(other)).read()


def test_a_sample_brings_its_own_consent_and_gives_it_to_nothing_else(source):
    sample = Source(kind="sample", name="I", sample="iris")
    assert Stated(statement="synthetic", who="", source=sample).read().who == "The makers of Encore"
    assert Stated(statement="synthetic", who="", source=sample).by_content == {}
    with pytest.raises(ConsentMissing):
        Stated(statement="synthetic", who="Ann", source=source, signed=sign(sample)).read()


def test_joined_recordings_are_all_signed_for(source, tmp_path):
    other = recording(tmp_path, "ben")
    together = Source(
        kind="recording", name="all", reference=tmp_path / "ben.wav", made_of=(source.reference, other.reference)
    )
    stated = Stated(statement="speaker-agreed", who="Ann", source=together, signed=sign(together))
    assert set(stated.by_content) == {hash_of_file(source.reference), hash_of_file(other.reference)}


def test_a_statement_is_for_all_recordings_that_are_listed_and_for_none_that_come_later(source, tmp_path):
    listed, later = recording(tmp_path, "ben"), recording(tmp_path, "cleo")
    signed = sign(source, [reference(source), reference(listed)])
    for cloned in (source, listed):
        stated = Stated(statement="own-voice", who="Ann", source=cloned, signed=signed)
        assert stated.read().given_for == hash_of_file(cloned.reference)
        assert set(stated.by_content) == {hash_of_file(source.reference), hash_of_file(listed.reference)}
    with pytest.raises(ConsentMissing, match="stated for another recording"):
        Stated(statement="own-voice", who="Ann", source=later, signed=signed).read()


def reference(source: Source) -> Reference:
    report = ReferenceReport(
        seconds=5.0, speech_dbfs=-20.0, noise_dbfs=-70.0, clipped_share=0.0, envelope=(), concerns=()
    )
    return Reference(name=source.name, path=source.reference, preview=source.reference, report=report)


@pytest.mark.parametrize("language", ["en", "de"])
def test_what_is_stored_is_the_sentence_that_was_shown(source, language):
    with spoken_to(language):
        shown = {kind: words for words, kind in statement_choices()}
        stored = {kind: Stated(statement=kind, who="Ann", source=source).read().wording for kind in shown}
    assert stored == shown
    assert (shown == STATEMENTS) == (language == "en")


@pytest.mark.parametrize(
    ("statement", "who", "words"),
    [
        (None, " ", "only with the consent of the person who speaks"),
        (None, "Ann", "one of these statements"),
        ("own-voice", " ", "needs the name of the person"),
        ("nonsense", "Ann", "one of these statements"),
    ],
)
def test_each_missing_part_of_a_consent_is_named(statement, who, words):
    with pytest.raises(ConsentMissing, match=words):
        read_consent(statement, who)
