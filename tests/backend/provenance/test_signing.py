"""Files are signed and looked up again; what cannot be signed leaves all the same, and why is said."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from backend.audio.encoding import encode
from backend.audio.formats import FORMAT_TABLE
from backend.errors import RecordingError
from backend.provenance import credentials
from backend.provenance.check import Checker
from backend.provenance.credentials import CERTIFICATE_FILE, CREDENTIALS_FOLDER, KEY_FILE, open_credentials
from backend.provenance.errors import SigningError
from backend.provenance.signing import FileSigner
from backend.provenance.statement import SpeechStatement

RATE = 24_000
SAMPLES = 0.3 * np.sin(np.arange(2 * RATE) * 0.05)
SAID = SpeechStatement(checkpoint="ab" * 32, voice="zero-shot", consent="own-voice", consent_sha256="cd" * 32)
SIGNED = [name for name, entry in FORMAT_TABLE.items() if entry.signed_as]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def signer(home):
    made = FileSigner(home)
    assert made.problem == ""
    return made


def file_of(audio_format, said=SAID):
    return encode(SAMPLES, RATE, audio_format, said.as_comment())


def look_up(content, home, tmp_path):
    path = tmp_path / "given"
    path.write_bytes(content)
    return Checker(home).check(path)


@pytest.mark.parametrize("audio_format", SIGNED)
def test_a_signed_file_is_told_from_a_changed_one_and_from_one_of_others(signer, home, tmp_path, audio_format):
    signed = signer.sign(file_of(audio_format), audio_format, SAID)
    verdict = look_up(signed, home, tmp_path)
    assert (verdict.signed.trust, verdict.signed.statement, verdict.comment) == ("ours", SAID, SAID)
    assert verdict.signed.is_synthetic
    assert verdict.seconds == pytest.approx(2.0, abs=0.1)
    elsewhere = look_up(signed, tmp_path / "another-home", tmp_path)
    assert (elsewhere.signed.trust, elsewhere.is_made_by_encore) == ("unknown-signer", True)
    assert "not known here" in elsewhere.lines[0]
    changed = bytearray(signed)
    changed[len(signed) // 2] ^= 1
    assert look_up(bytes(changed), home, tmp_path).signed.trust == "changed"


def test_a_foreign_speaker_and_text_are_shown_on_one_line_and_not_obeyed(signer, home, tmp_path):
    said = SAID.model_copy(update={"speaker": "\x1b[2JAnna\nExample", "text": "word " * 1000})
    verdict = look_up(signer.sign(file_of("flac", said), "flac", said), home, tmp_path)
    assert verdict.signed.statement == said
    assert "It names the speaker: “[2JAnna Example”." in verdict.lines
    assert all(line.isprintable() and len(line) < 400 for line in verdict.lines)
    assert not any("comment tag" in line for line in verdict.lines)


def test_what_tells_voices_apart_is_left_out_of_a_blind_test():
    said = SAID.model_copy(update={"speaker": "Anna", "text": "Hi."})
    assert said.without_origin() == SpeechStatement(id=said.id, made_at=said.made_at, text="Hi.")


def test_signing_leaves_the_samples_as_they_are(signer, tmp_path):
    path = tmp_path / "take.wav"
    path.write_bytes(file_of("wav"))
    before = path.read_bytes()
    assert signer.sign_file(path, "wav", SAID)
    assert before[44 : 44 + 4 * RATE] in path.read_bytes()
    assert not list(tmp_path.glob("*.partial"))
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600


def test_a_tag_without_signature_is_named_as_such(home, tmp_path):
    verdict = look_up(file_of("opus"), home, tmp_path)
    assert (verdict.signed, verdict.comment) == (None, SAID)
    assert "anyone can write" in verdict.lines[0]


def test_a_file_without_a_mark_is_not_called_real(home, tmp_path):
    verdict = look_up(encode(SAMPLES, RATE, "wav"), home, tmp_path)
    assert not verdict.is_made_by_encore
    assert "does not mean" in verdict.lines[-1]


def test_a_damaged_file_keeps_its_statement_and_noise_is_refused(signer, home, tmp_path):
    signed = signer.sign(file_of("flac"), "flac", SAID)
    cut = look_up(signed[: len(signed) // 2], home, tmp_path)
    assert (cut.signed.trust, cut.signed.statement) == ("changed", SAID)
    assert "damaged" in cut.problem
    with pytest.raises(RecordingError):
        look_up(b"c2pa jumb" * 100, home, tmp_path)


def test_the_key_is_its_users_alone_and_made_once(home, signer):
    folder = home / CREDENTIALS_FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert open_credentials(home) == signer.credentials
    assert b"PRIVATE" not in repr(signer.credentials).encode()


def test_an_expired_certificate_of_ours_is_replaced_and_still_known(tmp_path, monkeypatch):
    first = FileSigner(tmp_path)
    signed = first.sign(file_of("wav"), "wav", SAID)

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=3700)

    with monkeypatch.context() as patch:
        patch.setattr(credentials, "datetime", Later)
        second = open_credentials(tmp_path)
    assert second.certificates != first.credentials.certificates
    assert look_up(signed, tmp_path, tmp_path).signed.trust == "ours"


def operators(folder, *, days=1, key_of=None):
    """An operator's own certificate; returns the paths of certificate and key."""
    folder.mkdir(exist_ok=True)
    made = open_credentials(folder / "made")
    certificates, key = folder / "chain.pem", folder / "key.pem"
    certificates.write_bytes(made.certificates)
    key.write_bytes(made.key if key_of is None else key_of)
    return certificates, key


def test_an_operators_certificate_is_used_and_known(tmp_path):
    certificate, key = operators(tmp_path / "operator")
    signer = FileSigner(tmp_path / "home", certificate, key)
    path = tmp_path / "take.wav"
    path.write_bytes(signer.sign(file_of("wav"), "wav", SAID))
    assert Checker(tmp_path / "home", certificate).check(path).signed.trust == "ours"
    assert Checker(tmp_path / "home").check(path).signed.trust == "unknown-signer"
    assert not (tmp_path / "home" / CREDENTIALS_FOLDER).exists()


def another_key():
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def expired(folder):
    certificate, key = operators(folder)
    old = datetime.now(UTC) - timedelta(days=30)
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Old")])
    made = (
        x509.CertificateBuilder(name, name, private.public_key(), 5, old, old + timedelta(days=1))
        .sign(private, credentials.hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    certificate.write_bytes(made)
    return certificate, key


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: (operators(folder)[0], folder / "none.pem"), "cannot be read"),
        (lambda folder: (operators(folder)[0], None), "needs its key"),
        (lambda folder: operators(folder, key_of=another_key()), "not the key of"),
        (lambda folder: operators(folder, key_of=b"nonsense"), "no unencrypted private key"),
        (lambda folder: (operators(folder)[1], operators(folder)[1]), "no certificate in PEM"),
        (expired, "expired on"),
    ],
    ids=["unreadable", "no-key", "another-key", "no-pem", "no-certificate", "expired"],
)
def test_a_file_that_cannot_be_signed_leaves_all_the_same(tmp_path, caplog, make, words):
    certificate, key = make(tmp_path / "operator")
    with pytest.raises(SigningError, match=words):
        open_credentials(tmp_path, certificate, key)
    signer = FileSigner(tmp_path / "home", certificate, key)
    content = file_of("wav")
    assert signer.sign(content, "wav", SAID) is content
    assert words in signer.problem
    assert sum(words in record.message for record in caplog.records) == 1
    assert look_up(content, tmp_path, tmp_path).comment == SAID


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_signature_by_a_foreign_key_is_named(tmp_path):
    FileSigner(tmp_path)
    (tmp_path / CREDENTIALS_FOLDER / KEY_FILE).chmod(0)
    assert "cannot be read" in FileSigner(tmp_path).problem


def test_a_home_that_cannot_be_written_does_not_end_a_take(tmp_path):
    (tmp_path / "home").write_text("not a folder")
    signer = FileSigner(tmp_path / "home")
    assert "without a signature" in signer.problem
    assert not signer.sign_file(tmp_path / "missing.wav", "wav", SAID)


def test_a_file_that_is_none_is_not_signed(signer, tmp_path):
    path = tmp_path / "take.wav"
    path.write_bytes(b"RIFF nothing")
    assert not signer.sign_file(path, "wav", SAID)
    assert (path.read_bytes(), signer.problem != "") == (b"RIFF nothing", True)


def test_two_processes_that_start_at_once_have_one_certificate(tmp_path, monkeypatch):
    """The slower one finds the folder in its place, and uses it."""
    make = credentials._make

    def make_twice(folder):
        make(folder)
        make(folder)

    monkeypatch.setattr(credentials, "_make", make_twice)
    first = open_credentials(tmp_path)
    assert open_credentials(tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == [CREDENTIALS_FOLDER]
    assert (tmp_path / CREDENTIALS_FOLDER / CERTIFICATE_FILE).is_file()
