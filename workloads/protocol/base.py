"""Base class for immutable, strictly validated messages, and SHA-256 digests of content."""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict

from workloads.text import safe_text

TIME_MIN, TIME_MAX = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)

# Created once: a sweep computes a hundred thousand digests.
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def _check_moment(moment: datetime) -> datetime:
    if not TIME_MIN <= moment < TIME_MAX:
        raise ValueError("the time is not between the years 2000 and 2100")
    return moment


# A time with its zone, within limits between which no arithmetic overflows.
Moment = Annotated[AwareDatetime, AfterValidator(_check_moment)]
# Text for people, from wherever: safe to display, and shortened instead of refused.
SafeText = Annotated[
    str, BeforeValidator(lambda text: safe_text(text, 1000) if isinstance(text, str) else text)
]


class WireModel(BaseModel):
    """A frozen value without unknown fields, NaN or infinity; values of equal content are equal."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def canonical_json(content: Any) -> str:
    """Return the one text of JSON-like content that is equal on every machine."""
    return _CANONICAL.encode(content)


def digest_of(content: Any) -> str:
    """Return the SHA-256 of JSON-like content; equal on every machine and in every version."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def digest_with_prefix(parts: Sequence[str]) -> Callable[[str], str]:
    """Return a function that digests a list of texts with this prefix and one more text.

    `digest_with_prefix([a, b])(c)` equals `digest_of([a, b, c])` at a fraction of the time.
    """
    prefix = hashlib.sha256(f"{_CANONICAL.encode(list(parts))[:-1]},".encode())

    def digest(last: str) -> str:
        complete = prefix.copy()
        complete.update(f"{_CANONICAL.encode(last)}]".encode())
        return complete.hexdigest()

    return digest


def digest_of_bytes(content: bytes) -> str:
    """Return the SHA-256 of the bytes of a file."""
    return hashlib.sha256(content).hexdigest()
