"""A deadline is a value: handed down a chain of calls, it keeps nested waits from adding up."""

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Deadline:
    """A moment of the host's monotonic clock after which waiting is pointless."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """Set a deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self.at

    def within(self, seconds: float) -> "Deadline":
        """The earlier of this deadline and one that many seconds from now."""
        return min(self, Deadline.after(seconds), key=lambda deadline: deadline.at)
