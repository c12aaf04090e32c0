"""The phone's side of wireless pairing (Android 11): TLS 1.3, SPAKE2 over the code, both keys.

adbd has no such server, Android's settings have. Written after the description of the protocol in
packages/modules/adb/pairing_auth and after RFC 9382 with BoringSSL's points and transcripts.
"""

import ctypes
import hashlib
import hmac
import secrets
import socket
import struct
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_CLIENT, _SERVER = b"adb pair client\0", b"adb pair server\0"
_LABEL, _SECRET_BYTES = b"adb-label\0", 64
_HEADER = struct.Struct(">BBI")  # version, kind, bytes
_SPAKE, _PEER = 0, 1
_PEER_BYTES, _GUID_TYPE = 8192, 1
_PEM = 1


class Point(NamedTuple):
    """A point of edwards25519."""

    x: int
    y: int

    def __add__(self, other: object) -> "Point":
        assert isinstance(other, Point)
        product = _D * self.x * other.x * self.y * other.y % _P
        x = (self.x * other.y + self.y * other.x) * pow(1 + product, -1, _P)
        y = (self.y * other.y + self.x * other.x) * pow(1 - product, -1, _P)
        return Point(x % _P, y % _P)

    def times(self, scalar: int) -> "Point":
        total, term = Point(0, 1), self
        while scalar:
            total = total + term if scalar & 1 else total
            term, scalar = term + term, scalar >> 1
        return total

    def negated(self) -> "Point":
        return Point(-self.x % _P, self.y)

    def encode(self) -> bytes:
        return (self.y | (self.x & 1) << 255).to_bytes(32, "little")


def decode(data: bytes) -> Point:
    """Decode a point, or raise ValueError."""
    number = int.from_bytes(data, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    if (x * x - square) % _P:
        raise ValueError("not a point of the curve")
    return Point(_P - x if x & 1 != sign else x, y)


def _point_of(name: str) -> Point:
    """Find a point whose logarithm is unknown: hash a seed until it is one."""
    data = f"edwards25519 point generation seed ({name})".encode()
    while True:
        data = hashlib.sha256(data).digest()
        try:
            return decode(data)
        except ValueError:
            continue


_BASE = decode((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))


def _password_scalar(digest: bytes) -> int:
    """Return the password modulo the order, as a multiple of the cofactor."""
    scalar = int.from_bytes(digest, "little") % _ORDER
    for bit in range(3):
        scalar += (_ORDER << bit) if scalar >> bit & 1 else 0
    return scalar


def server_secret(password: bytes, message: bytes, private: int) -> tuple[bytes, bytes]:
    """Return the message of the server, and the key that both sides share."""
    digest = hashlib.sha512(password).digest()
    scalar = _password_scalar(digest)
    own = (_BASE.times(private) + _point_of("N").times(scalar)).encode()
    peer = decode(message) + _point_of("M").times(scalar).negated()
    parts = (_CLIENT, _SERVER, message, own, peer.times(private).encode(), digest)
    transcript = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return own, hashlib.sha512(transcript).digest()


def _packet_key(secret: bytes) -> bytes:
    """Derive the key of the packets: one round of HKDF without salt."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, b"adb pairing_auth aes-128-gcm key\x01", "sha256")[:16]


class _TlsServer:
    """A TLS 1.3 connection that exports key material, which Python's ssl does not."""

    def __init__(self, connection: socket.socket, certificate: Path) -> None:
        self._lib = lib = ctypes.CDLL("libssl.so.3")
        for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new"):
            getattr(lib, name).restype = ctypes.c_void_p
        context = ctypes.c_void_p(lib.SSL_CTX_new(ctypes.c_void_p(lib.TLS_server_method())))
        file = str(certificate).encode()
        assert lib.SSL_CTX_use_certificate_file(context, file, _PEM) == 1
        assert lib.SSL_CTX_use_PrivateKey_file(context, file, _PEM) == 1
        self._ssl = ctypes.c_void_p(lib.SSL_new(context))
        lib.SSL_set_fd(self._ssl, connection.fileno())
        if lib.SSL_accept(self._ssl) != 1:
            raise ConnectionError("the host gave up")

    def key_material(self) -> bytes:
        out = ctypes.create_string_buffer(_SECRET_BYTES)
        arguments = (self._ssl, out, ctypes.c_size_t(_SECRET_BYTES), _LABEL)
        size = ctypes.c_size_t(len(_LABEL))
        none = ctypes.c_size_t(0)
        assert self._lib.SSL_export_keying_material(*arguments, size, None, none, 0) == 1
        return out.raw

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = ctypes.create_string_buffer(size - len(data))
            count = self._lib.SSL_read(self._ssl, chunk, len(chunk))
            if count <= 0:
                raise ConnectionError("the host closed the connection")
            data += chunk.raw[:count]
        return data

    def write(self, data: bytes) -> None:
        assert self._lib.SSL_write(self._ssl, data, len(data)) == len(data)


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


class PairingServer:
    """A phone whose pairing dialog is open; it keeps the keys of hosts that knew the code."""

    def __init__(self, code: str, guid: str, certificate: Path) -> None:
        self._code, self._guid, self._certificate = code.encode(), guid.encode(), certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.host_keys: list[bytes] = []
        threading.Thread(target=self._serve, name="pairing", daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self._pair(_TlsServer(connection, self._certificate))
                except (ConnectionError, InvalidTag, ValueError):
                    continue  # a wrong code: the packets of the host cannot be decrypted

    def _pair(self, tls: _TlsServer) -> None:
        message = self._read(tls, _SPAKE)
        password = self._code + tls.key_material()
        private = secrets.randbelow(_ORDER) * 8
        own, secret = server_secret(password, message, private)
        self._write(tls, _SPAKE, own)
        cipher, nonce = AESGCM(_packet_key(secret)), bytes(12)
        peer = struct.pack(f"B{_PEER_BYTES - 1}s", _GUID_TYPE, self._guid)
        self._write(tls, _PEER, cipher.encrypt(nonce, peer, None))
        key = cipher.decrypt(nonce, self._read(tls, _PEER), None)
        self.host_keys.append(key[1:].rstrip(b"\0"))

    @staticmethod
    def _read(tls: _TlsServer, kind: int) -> bytes:
        version, found, size = _HEADER.unpack(tls.read(_HEADER.size))
        if (version, found) != (1, kind) or size > 2 * _PEER_BYTES:
            raise ValueError("an unexpected packet")
        return tls.read(size)

    @staticmethod
    def _write(tls: _TlsServer, kind: int, payload: bytes) -> None:
        tls.write(_HEADER.pack(1, kind, len(payload)) + payload)
