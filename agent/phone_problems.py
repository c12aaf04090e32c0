"""PhoneProblems: the phones that the agent cannot use, and when each is tried again."""

import logging
import threading
import time

from workloads.protocol.unusable_phone import PhoneProblem, UnusablePhone
from workloads.text import safe_text

log = logging.getLogger("farm.phones")

RETRY_MIN_S, RETRY_MAX_S = 2.0, 60.0
PROBLEMS_MAX = 300  # that a heartbeat shows
TRANSIENT_PROBLEMS = (PhoneProblem.OFFLINE, PhoneProblem.STARTING)
SETTLED_S = 3.0


class PhoneProblems:
    """Problems by adb address; every change of a problem is logged once."""

    def __init__(self, retry_min_s: float = RETRY_MIN_S) -> None:
        self._retry_min_s = retry_min_s
        self._lock = threading.Lock()
        self._problems: dict[str, UnusablePhone] = {}
        self._since: dict[str, float] = {}
        self._logged: dict[str, UnusablePhone] = {}
        self._retries: dict[str, tuple[float, float]] = {}  # pause and time of the next attempt

    def note(self, address: str, problem: PhoneProblem, text: str = "") -> UnusablePhone:
        """Remember why a phone cannot be used."""
        shown, text = safe_text(address, 120), safe_text(text, 300)
        unusable = UnusablePhone(address=shown, problem=problem, text=text)
        with self._lock:
            known = self._problems.get(address)
            if (
                known
                and known.problem is PhoneProblem.UNREACHABLE
                and problem in TRANSIENT_PROBLEMS
            ):
                return known  # adb shows it so while it tries
            if known is None or known.problem is not problem:
                self._since[address] = time.monotonic()
            self._problems[address] = unusable
        self.list()  # logs it
        return unusable

    def clear(self, address: str) -> None:
        """The phone can be used, or adb does not list it any more."""
        with self._lock:
            for table in (self._problems, self._since, self._logged, self._retries):
                table.pop(address, None)

    def keep_only(self, addresses: set[str]) -> None:
        """Forget all other addresses."""
        for address in [*self._problems]:
            if address not in addresses:
                self.clear(address)

    def list(self) -> dict[str, UnusablePhone]:
        """The problem of each address; a phone that connects is offline for a moment."""
        now = time.monotonic()
        with self._lock:
            shown = {
                address: item
                for address, item in sorted(self._problems.items())[:PROBLEMS_MAX]
                if item.problem not in TRANSIENT_PROBLEMS or now - self._since[address] > SETTLED_S
            }
            new = [item for at, item in shown.items() if self._logged.get(at) != item]
            self._logged |= shown
        for item in new:
            log.warning("phone cannot be used: %s address=%s", item.advice, item.address)
        return shown

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
