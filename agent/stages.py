"""The stages of a lane: which one it is in, how long each took, and whether to go on."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.deadline import Deadline
from agent.lane_view import LaneView
from workloads.fault import Cancelled

LAST = "restore"  # nobody can cancel putting a phone back


class Stages:
    """Called with a stage's name, it is the context of that stage. Every stage shows life."""

    def __init__(
        self,
        view: LaneView,
        cancel: threading.Event,
        show_life: Callable[[], None],
        nap_s: float,
    ) -> None:
        self.now = "start"
        self.took_s: dict[str, float] = {}
        self._view = view
        self._cancel = cancel
        self._show_life = show_life
        self._nap_s = nap_s

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.now = name
        self._view.begin(name)
        began = time.monotonic()
        try:
            if name != LAST and self._cancel.is_set():
                raise Cancelled
            self._show_life()
            yield
        finally:
            self.took_s[name] = round(time.monotonic() - began, 4)

    def sleep(self, seconds: float) -> None:
        """Sleep host seconds, awake to a cancel, and show life meanwhile."""
        until = Deadline.after(seconds)
        while not until.expired:
            if self._cancel.wait(min(until.remaining, self._nap_s)):
                raise Cancelled
            self._show_life()
