"""PhoneProblems: the phones that the agent cannot use, and when each is tried again."""

import logging
import threading
import time

from workloads.protocol.unusable_phone import PhoneProblem, UnusablePhone
from workloads.text import safe_text

log = logging.getLogger("farm.phones")

RETRY_MIN_S, RETRY_MAX_S = 2.0, 60.0
PROBLEMS_MAX = 300  # that a heartbeat shows


class PhoneProblems:
    """Problems by adb address; every change of a problem is logged once."""

    def __init__(self, retry_min_s: float = RETRY_MIN_S) -> None:
        self._retry_min_s = retry_min_s
        self._lock = threading.Lock()
        self._problems: dict[str, UnusablePhone] = {}
        self._retries: dict[str, tuple[float, float]] = {}  # pause and time of the next attempt

    def note(self, address: str, problem: PhoneProblem, text: str = "") -> UnusablePhone:
        """Remember why a phone cannot be used."""
        shown = safe_text(address, 120)
        unusable = UnusablePhone(address=shown, problem=problem, text=safe_text(text, 300))
        with self._lock:
            changed = self._problems.get(address) != unusable
            self._problems[address] = unusable
        if changed:
            log.warning("phone cannot be used: %s address=%s", unusable.advice, shown)
        return unusable

    def clear(self, address: str) -> None:
        """The phone can be used, or adb does not list it any more."""
        with self._lock:
            self._problems.pop(address, None)
            self._retries.pop(address, None)

    def keep_only(self, addresses: set[str]) -> None:
        """Forget all other addresses."""
        for address in [*self._problems]:
            if address not in addresses:
                self.clear(address)

    def list(self) -> dict[str, UnusablePhone]:
        """The problem of each address."""
        with self._lock:
            return dict(sorted(self._problems.items())[:PROBLEMS_MAX])

    def postpone(self, address: str) -> None:
        """An attempt failed: wait longer before each next one."""
        with self._lock:
            pause_s = min(
                self._retries.get(address, (self._retry_min_s / 2, 0.0))[0] * 2, RETRY_MAX_S
            )
            self._retries[address] = (pause_s, time.monotonic() + pause_s)

    def is_due(self, address: str) -> bool:
        """Whether a phone may be tried again."""
        with self._lock:
            return time.monotonic() >= self._retries.get(address, (0.0, 0.0))[1]
