"""Who may talk to a phone: nobody is asked, or a host must hold a key that the phone knows.

A host proves a key by signing a token; an unknown key waits until somebody accepts it, as a
finger on the phone's screen would.
"""

import base64
import binascii
import secrets
from collections.abc import Callable
from dataclasses import dataclass

TOKEN_BYTES = 20
_KEY_BYTES = 256
# What PKCS#1 puts before a SHA-1 digest.
_SHA1_MARK = bytes.fromhex("3021300906052b0e03021a05000414")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An RSA key as adb writes it into adbkey.pub."""

    modulus: int
    exponent: int

    def signed(self, token: bytes, signature: bytes) -> bool:
        """Whether the signature is this key's; adb signs the token as if it were a digest."""
        if len(signature) != _KEY_BYTES:
            return False
        number = pow(int.from_bytes(signature, "big"), self.exponent, self.modulus)
        padding = b"\xff" * (_KEY_BYTES - 3 - len(_SHA1_MARK) - TOKEN_BYTES)
        return number.to_bytes(_KEY_BYTES, "big") == b"\0\1" + padding + b"\0" + _SHA1_MARK + token


def read_public_key(text: bytes) -> PublicKey | None:
    """Parse `BASE64 user@host`; None for anything else."""
    try:
        raw = base64.b64decode(text.rstrip(b"\0").split(b" ")[0].strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    # Words of the modulus, -1/n mod 2^32, modulus, a square for Montgomery, exponent.
    if len(raw) != 4 + 4 + _KEY_BYTES * 2 + 4 or int.from_bytes(raw[:4], "little") != 64:
        return None
    modulus = int.from_bytes(raw[8 : 8 + _KEY_BYTES], "little")
    exponent = int.from_bytes(raw[-4:], "little")
    return PublicKey(modulus, exponent) if modulus > 2 and exponent > 2 else None


class Authority:
    """One phone's list of hosts; `required` is what a stock phone is by default."""

    def __init__(self) -> None:
        self.required = False
        self._keys: set[PublicKey] = set()
        self._waiting: dict[PublicKey, list[Callable[[], None]]] = {}

    def give(self, *keys: PublicKey) -> None:
        """Know these keys and ask for one of them from now on."""
        self._keys.update(keys)
        self.required = True

    def forget(self) -> None:
        """Know nobody, and ask: the next host is unauthorized."""
        self._keys.clear()
        self.required = True

    def knows(self, token: bytes, signature: bytes) -> bool:
        return any(key.signed(token, signature) for key in self._keys)

    def wait(self, key: PublicKey, welcome: Callable[[], None]) -> None:
        """A host showed a key: welcome it now if it is known, or once it is accepted."""
        if key in self._keys:
            welcome()
        else:
            self._waiting.setdefault(key, []).append(welcome)

    @property
    def waiting(self) -> int:
        """How many keys nobody has accepted yet."""
        return len(self._waiting)

    def accept(self) -> int:
        """Accept every key that waits; how many there were."""
        waiting, self._waiting = self._waiting, {}
        self._keys.update(waiting)
        for welcomes in waiting.values():
            for welcome in welcomes:
                welcome()
        return len(waiting)


def new_token() -> bytes:
    return secrets.token_bytes(TOKEN_BYTES)
