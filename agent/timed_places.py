"""A concurrency limit that slow actions cannot block.

A limited number of actions run at the same time, so that many phones do not overload a host. An
action that takes longer than expected releases its place and continues in addition to the others.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TimedPlaces:
    """Places for simultaneous actions, each for a limited time."""

    def __init__(self, count: int, limit_s: float) -> None:
        self._free = threading.Semaphore(count)
        self._limit_s = limit_s

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place, and occupy it until the end of the block or of its time."""
        self._free.acquire()
        released = threading.Lock()  # removed by the thread that releases the place

        def release() -> None:
            if released.acquire(blocking=False):
                self._free.release()

        timer = threading.Timer(self._limit_s, release)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            release()
