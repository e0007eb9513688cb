"""What was stated on the page counts for the recordings it was stated for, and for no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.voices.consent import SpokenProof, hash_of_file
from backend.voices.errors import ConsentInvalid, ConsentMissing
from ui.consent import Stated, sign
from ui.source import Source


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
