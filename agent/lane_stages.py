"""LaneStages: the stage that a lane is in, the time that each stage took, and cancellation."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.deadline import Deadline
from agent.lane_status import LaneStatus
from workloads.protocol.faults import Cancelled
from workloads.protocol.stage import Stage

LAST_STAGE = Stage.RESTORE  # restoring a phone cannot be cancelled


class LaneStages:
    """Called with a stage, it returns the context of that stage. Every stage sends a heartbeat."""

    def __init__(
        self,
        status: LaneStatus,
        cancel: threading.Event,
        send_heartbeat: Callable[[], None],
        heartbeat_interval_s: float,
    ) -> None:
        self.current = Stage.START
        self.seconds: dict[Stage, float] = {}
        self._status = status
        self._cancel = cancel
        self._send_heartbeat = send_heartbeat
        self._heartbeat_interval_s = heartbeat_interval_s

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[None]:
        self.current = stage
        self._status.begin(stage)
        started = time.monotonic()
        try:
            if stage is not LAST_STAGE and self._cancel.is_set():
                raise Cancelled
            self._send_heartbeat()
            yield
        finally:
            self.seconds[stage] = round(time.monotonic() - started, 4)

    def sleep(self, seconds: float) -> None:
        """Sleep host seconds with heartbeats; raise Cancelled at once if the lane is cancelled."""
        deadline = Deadline.after(seconds)
        while not deadline.expired:
            if self._cancel.wait(min(deadline.remaining, self._heartbeat_interval_s)):
                raise Cancelled
            self._send_heartbeat()
