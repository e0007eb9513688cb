"""What statements are signed with: a certificate that the installation makes for itself, or the operator's own."""

from __future__ import annotations

import os
import secrets
import shutil
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from backend.provenance.errors import SigningError

CREDENTIALS_FOLDER = "signing"
KEY_FILE, CERTIFICATE_FILE = "key.pem", "certificate.pem"
_VALID_FOR = timedelta(days=3650)
# Clocks of the machines that look a statement up may be behind.
_BACKDATED = timedelta(days=1)
_ECDSA = {"secp256r1": "es256", "secp384r1": "es384", "secp521r1": "es512"}


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A key with its certificates, as PEM.

    Attributes:
        certificates: the signer's first, then those that vouch for it.
        key: never shown.
        algorithm: C2PA's name of how it signs.
        expires_at: when the signer's certificate ends.
        is_own: whether the installation made it for itself.
    """

    certificates: bytes
    key: bytes = field(repr=False)
    algorithm: str
    expires_at: datetime
    is_own: bool

    @property
    def certificate(self) -> str:
        """The signer's certificate alone, as PEM."""
        return _pem(x509.load_pem_x509_certificates(self.certificates)[0]).decode()

    @property
    def signer(self) -> str:
        """What the signer is called."""
        subject = x509.load_pem_x509_certificates(self.certificates)[0].subject
        names = [*subject.get_attributes_for_oid(NameOID.COMMON_NAME), *subject]
        return str(names[0].value) if names else "(no name)"


def open_credentials(home: Path, certificate: Path | None = None, key: Path | None = None) -> Credentials:
    """The operator's own certificate and key where both are named, otherwise the installation's.

    The installation's are made the first time, and anew once they have expired.

    Raises:
        SigningError: a file cannot be read or is not what it should be, or the operator's certificate has expired.
    """
    if (certificate is None) != (key is None):
        raise SigningError("A certificate needs its key. Set both ENCORE_SIGNING_CERT and ENCORE_SIGNING_KEY, or none.")
    if certificate is not None and key is not None:
        return _read(certificate, key, is_own=False)
    folder = home / CREDENTIALS_FOLDER
    try:
        if not folder.exists():
            _make(folder)
        credentials = _read(folder / CERTIFICATE_FILE, folder / KEY_FILE, is_own=True)
        if credentials.expires_at <= datetime.now(UTC):
            # Kept, because what it has signed is still looked up with it.
            os.replace(folder, folder.with_name(f"{folder.name}-until-{credentials.expires_at:%Y-%m-%d}"))
            _make(folder)
            credentials = _read(folder / CERTIFICATE_FILE, folder / KEY_FILE, is_own=True)
        return credentials
    except OSError as error:
        raise SigningError(f"{folder} cannot be written: {error.strerror}. Files leave without a signature.") from error


@dataclass(frozen=True, kw_only=True)
class KnownSigners:
    """By which statements of this installation are told from those of others.

    Attributes:
        anchors: the last certificate of each chain, as PEM.
        serial_numbers: of the signers' own certificates, which tell them from others that an anchor vouches for.
    """

    anchors: str
    serial_numbers: frozenset[str]


def known_signers(home: Path | None, certificate: Path | None = None) -> KnownSigners:
    """Those with which this installation signs or has signed; a certificate that cannot be read is left out."""
    anchors, serial_numbers = [], set()
    operators = [] if certificate is None else [certificate]
    own = [] if home is None else sorted(home.glob(f"{CREDENTIALS_FOLDER}*/{CERTIFICATE_FILE}"))
    for path in (*own, *operators):
        try:
            chain = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            continue
        anchors.append(_pem(chain[-1]).decode())
        serial_numbers.add(str(chain[0].serial_number))
    return KnownSigners(anchors="".join(anchors), serial_numbers=frozenset(serial_numbers))


def _read(certificate: Path, key: Path, *, is_own: bool) -> Credentials:
    chain_pem, key_pem = _content(certificate), _content(key)
    try:
        chain = x509.load_pem_x509_certificates(chain_pem)
    except ValueError as error:
        raise SigningError(f"{certificate} is no certificate in PEM format. {_remedy(is_own)}") from error
    try:
        private = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError) as error:
        raise SigningError(f"{key} is no unencrypted private key in PEM format. {_remedy(is_own)}") from error
    if private.public_key() != chain[0].public_key():
        raise SigningError(f"{key} is not the key of {certificate}. {_remedy(is_own)}")
    expires_at = chain[0].not_valid_after_utc
    if not is_own and expires_at <= datetime.now(UTC):
        raise SigningError(f"{certificate} expired on {expires_at:%Y-%m-%d}. {_remedy(is_own)}")
    return Credentials(
        certificates=chain_pem,
        key=key_pem,
        algorithm=_algorithm(private, key),
        expires_at=expires_at,
        is_own=is_own,
    )


def _algorithm(private: object, path: Path) -> str:
    match private:
        case ec.EllipticCurvePrivateKey() if private.curve.name in _ECDSA:
            return _ECDSA[private.curve.name]
        case rsa.RSAPrivateKey():
            return "ps256"
        case ed25519.Ed25519PrivateKey():
            return "ed25519"
    raise SigningError(f"{path} is of a kind that C2PA does not sign with. Use ECDSA (P-256), RSA or Ed25519.")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SigningError(
            f"{path} cannot be read: {error.strerror}. Make it readable for the user that runs Encore."
        ) from error


def _remedy(is_own: bool) -> str:
    return "Delete its folder, and a new one is made." if is_own else "Correct ENCORE_SIGNING_CERT, ENCORE_SIGNING_KEY."


def _make(folder: Path) -> None:
    """Make a certificate and put it in its place in one step; another process may have been faster."""
    # C2PA accepts no certificate that signs itself: a root vouches for it, whose key is not kept.
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = secrets.token_hex(4)
    root_name, own_name = _name(f"Encore installation {name} (root)"), _name(f"Encore installation {name}")
    root = (
        _certificate(root_name, root_name, root_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_root=True), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    own = (
        _certificate(own_name, root_name, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_root=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.EMAIL_PROTECTION]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    partial = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    partial.mkdir(mode=0o700, parents=True)
    try:
        for file, content in ((KEY_FILE, private), (CERTIFICATE_FILE, _pem(own) + _pem(root))):
            # Never readable by others, not even for a moment.
            descriptor = os.open(partial / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as target:
                target.write(content)
        os.rename(partial, folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _name(common: str) -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Encore")
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, is_root: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_root,
        key_cert_sign=is_root,
        crl_sign=is_root,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
