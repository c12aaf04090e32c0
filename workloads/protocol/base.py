"""What every noun that travels has in common: frozen, strict, known by digest."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

# Made once: a sweep takes a hundred thousand digests.
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


class Noun(BaseModel):
    """A frozen value; two nouns with equal content are the same noun."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def digest_of(content: Any) -> str:
    """Identify JSON-like content: equal content, equal digest, on every machine and version."""
    return hashlib.sha256(_CANONICAL.encode(content).encode()).hexdigest()


def digest_begun(parts: Sequence[str]) -> Callable[[str], str]:
    """The digest of a list of texts that lacks its last: give that, as often as needed.

    `digest_begun([a, b])(c)` is `digest_of([a, b, c])`, at a fraction of its price.
    """
    begun = hashlib.sha256(f"{_CANONICAL.encode(list(parts))[:-1]},".encode())

    def ended(last: str) -> str:
        whole = begun.copy()
        whole.update(f"{_CANONICAL.encode(last)}]".encode())
        return whole.hexdigest()

    return ended


def digest_of_bytes(content: bytes) -> str:
    """Identify a file by its bytes."""
    return hashlib.sha256(content).hexdigest()
