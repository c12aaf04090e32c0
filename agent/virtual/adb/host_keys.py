"""Authentication of hosts: which adb keys a phone accepts.

By default every host may connect. If keys are required, a host proves its key by signing a token;
a host with an unknown key stays unauthorized, as if the dialog on the screen were not answered.
"""

import base64
import binascii
import secrets
from dataclasses import dataclass

TOKEN_BYTES = 20
_KEY_BYTES = 256
# PKCS#1 puts these bytes before a SHA-1 digest.
_SHA1_PREFIX = bytes.fromhex("3021300906052b0e03021a05000414")


@dataclass(frozen=True, slots=True)
class AdbPublicKey:
    """An RSA key as adb writes it to adbkey.pub."""

    modulus: int
    exponent: int

    def verifies(self, token: bytes, signature: bytes) -> bool:
        """Return whether the signature was made with this key; adb signs the token as if it were a
        digest.
        """
        if len(signature) != _KEY_BYTES:
            return False
        number = pow(int.from_bytes(signature, "big"), self.exponent, self.modulus)
        padding = b"\xff" * (_KEY_BYTES - 3 - len(_SHA1_PREFIX) - TOKEN_BYTES)
        return (
            number.to_bytes(_KEY_BYTES, "big") == b"\0\1" + padding + b"\0" + _SHA1_PREFIX + token
        )


def parse_public_key(text: bytes) -> AdbPublicKey | None:
    """Parse `BASE64 user@host`; return None for anything else."""
    try:
        raw = base64.b64decode(text.rstrip(b"\0").split(b" ")[0].strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    # Length of the modulus in 32-bit words, -1/n mod 2^32, modulus, R^2 for Montgomery, exponent.
    if len(raw) != 4 + 4 + _KEY_BYTES * 2 + 4 or int.from_bytes(raw[:4], "little") != 64:
        return None
    modulus = int.from_bytes(raw[8 : 8 + _KEY_BYTES], "little")
    exponent = int.from_bytes(raw[-4:], "little")
    return AdbPublicKey(modulus, exponent) if modulus > 2 and exponent > 2 else None


class HostKeys:
    """The keys that one phone accepts."""

    def __init__(self) -> None:
        self.is_required = False
        self._keys: set[AdbPublicKey] = set()

    def require_keys(self, *keys: AdbPublicKey) -> None:
        """Accept these keys, and require one of the accepted keys from now on."""
        self._keys.update(keys)
        self.is_required = True

    def accepts_signature(self, token: bytes, signature: bytes) -> bool:
        return any(key.verifies(token, signature) for key in self._keys)

    def accepts(self, key: AdbPublicKey) -> bool:
        return key in self._keys


def make_token() -> bytes:
    return secrets.token_bytes(TOKEN_BYTES)
