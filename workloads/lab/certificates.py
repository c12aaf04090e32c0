"""The certificates of a lab: its authority, servers, clients and hosts, all with P-256 keys.

A private key never leaves the computer that uses it: a host sends a request, and the authority
signs it under the name that the lab gave to the host.
"""

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from workloads.protocol.faults import BadFile, InvalidRequest
from workloads.text import safe_text

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 730
CLOCK_SKEW = timedelta(hours=1)  # the clock of another host may be behind
REQUEST_BYTES_MAX = 8192
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
SERVER_PATTERN = (
    r"[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*"
)
SERVER_NAME_MAX = 253
COMMON_NAME_MAX = 64
_SERVER, _CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> None:
        """Write NAME.pem, and NAME.key for its owner only."""
        write_private(folder / f"{name}.key", self.key)
        write_private(folder / f"{name}.pem", self.certificate, mode=0o644)

    @classmethod
    def read(cls, folder: Path, name: str) -> "KeyPair":
        """Read what `write` wrote."""
        try:
            return cls((folder / f"{name}.pem").read_bytes(), (folder / f"{name}.key").read_bytes())
        except OSError as error:
            raise BadFile(f"{error.filename} cannot be read: {error.strerror}") from error


def write_private(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically; other users can never read it unless the mode allows it."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(file.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
    part.replace(file)


def check_server_name(name: str) -> None:
    """Refuse what is neither a name nor an address."""
    _general_name(name)


def create_authority(name: str) -> KeyPair:
    """Create the authority of a lab."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, key.public_key(), AUTHORITY_DAYS).issuer_name(_subject(name))
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    return KeyPair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def create_certificate(authority: KeyPair, name: str, names: Sequence[str] = ()) -> KeyPair:
    """Create a client's certificate, or with names and addresses a server's."""
    key = ec.generate_private_key(ec.SECP256R1())
    return KeyPair(_issue(authority, name, key.public_key(), names), _key_pem(key))


def create_request(name: str) -> KeyPair:
    """Create a key and a request for its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    signed = request.sign(key, hashes.SHA256())
    return KeyPair(signed.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def sign_request(authority: KeyPair, request: bytes, name: str) -> bytes:
    """Return a client's certificate for the key of a request; nothing else of it is used."""
    try:
        asked = x509.load_pem_x509_csr(request[:REQUEST_BYTES_MAX])
        key = asked.public_key()
        is_usable = asked.is_signature_valid and isinstance(key, ec.EllipticCurvePublicKey)
    except (ValueError, TypeError) as error:
        raise InvalidRequest("the request for a certificate cannot be read") from error
    if not is_usable or not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidRequest("the request for a certificate is not signed by a P-256 key")
    return _issue(authority, name, key, ())


def expires_at(certificate: bytes) -> datetime:
    """Return when a certificate ends."""
    return _load(certificate).not_valid_after_utc


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate."""
    return _load(certificate).fingerprint(hashes.SHA256()).hex()


def only_certificate(pem: bytes) -> bytes:
    """Return the one certificate of a PEM without anything else; two certificates are refused."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BadFile(f"this is not a certificate (PEM): {error}") from error
    if len(found) != 1:
        raise BadFile(f"one certificate is expected, this file has {len(found)}")
    return _pem(found[0])


def check_issued(certificate: bytes, key: bytes, name: str, authority: bytes) -> None:
    """Raise ValueError unless a certificate is for this key and name, from this authority.

    Without an authority only key and name are compared.
    """
    issued, own = _load(certificate), serialization.load_pem_private_key(key, None)
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if issued.public_key().public_bytes(*form) != own.public_key().public_bytes(*form):
        raise ValueError("its certificate is for another key")
    if issued.subject != _subject(name):
        raise ValueError("its certificate is for another host")
    if authority:
        try:
            issued.verify_directly_issued_by(_load(authority))
        except (ValueError, TypeError, InvalidSignature) as error:
            raise ValueError("its certificate is of another authority") from error


def _load(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise BadFile(f"this is not a certificate (PEM): {error}") from error


def _issue(
    authority: KeyPair, name: str, key: ec.EllipticCurvePublicKey, names: Sequence[str]
) -> bytes:
    issuer = _load(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    builder = _builder(name, key, CERTIFICATE_DAYS).issuer_name(issuer.subject)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_usage("digital_signature"), critical=True)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(issuer_key, critical=False)
    purpose = x509.ExtendedKeyUsage([_SERVER if names else _CLIENT])
    builder = builder.add_extension(purpose, critical=False)
    if names:
        alternatives = x509.SubjectAlternativeName([_general_name(item) for item in names])
        builder = builder.add_extension(alternatives, critical=False)
    return _pem(builder.sign(signer, hashes.SHA256()))


def _builder(name: str, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:COMMON_NAME_MAX])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not re.fullmatch(SERVER_PATTERN, name) or len(name) > SERVER_NAME_MAX:
        shown = safe_text(name, 80)
        raise InvalidRequest(f"'{shown}' is not the name or the address of a server")
    return x509.DNSName(name)


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in _USAGES})


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
