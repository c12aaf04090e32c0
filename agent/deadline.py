"""Deadline: a point in time that bounds a whole chain of calls.

It is passed down, because the timeouts of nested waits would add up.
"""

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Deadline:
    """A moment of the host's monotonic clock."""

    monotonic_s: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """Return the deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self.monotonic_s - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self.monotonic_s

    def within(self, seconds: float) -> "Deadline":
        """Return the earlier of this deadline and one that many seconds from now."""
        return min(self, Deadline.after(seconds), key=lambda deadline: deadline.monotonic_s)
