"""Pairing with a phone over Wi-Fi, by the stock adb: the right code, and a wrong one."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from agent.deadline import Deadline
from agent.phone.adb import AdbServer
from tests.agent.pairing_server import PairingServer
from tests.virtual.adb_host import wait_until
from workloads.protocol.faults import PhoneTrouble

GUID = "adb-R5CT10XYZ1A-a1B2c3"


def certificate_file(folder: Path) -> Path:
    """Write a key and a certificate for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "phone")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = folder / "phone.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return file


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[PairingServer]:
    server = PairingServer("592781", GUID, certificate_file(tmp_path))
    yield server
    server.close()


def test_the_right_code_gives_the_phone_the_key_of_this_host(
    adb: AdbServer, phone: PairingServer
) -> None:
    service = adb.pair(phone.address, "592781", Deadline.after(20))
    assert service == f"{GUID}._adb-tls-connect._tcp"
    wait_until(lambda: bool(phone.host_keys), "the phone has the key")
    (key,) = phone.host_keys
    assert len(key) > 500  # of RSA, in the format of adb


def test_a_wrong_code_is_refused_in_one_sentence(adb: AdbServer, phone: PairingServer) -> None:
    with pytest.raises(PhoneTrouble, match="compare address and code with the phone's screen"):
        adb.pair(phone.address, "111111", Deadline.after(20))
    assert not phone.host_keys
