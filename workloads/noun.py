"""What every noun that travels has in common: frozen, strict, known by digest."""

import hashlib
import json
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


def digest_of_bytes(content: bytes) -> str:
    """Identify a file by its bytes."""
    return hashlib.sha256(content).hexdigest()
