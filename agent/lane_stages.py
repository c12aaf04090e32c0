"""LaneStages: the stage that a lane is in, and the phone's time that each stage took."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.lane_status import LaneStatus
from agent.phone.phone_waits import Cancellation
from workloads.protocol.faults import Cancelled
from workloads.protocol.stage import Stage

LAST_STAGE = Stage.RESTORE  # restoring a phone cannot be cancelled


class LaneStages:
    """Called with a stage, it returns the context of that stage. Every stage sends a heartbeat."""

    def __init__(
        self,
        status: LaneStatus,
        cancel: Cancellation,
        send_heartbeat: Callable[[], None],
        phone_clock_s: Callable[[], float | None],
    ) -> None:
        self.current = Stage.START
        self.seconds: dict[Stage, float] = {}
        self._status = status
        self._cancel = cancel
        self._send_heartbeat = send_heartbeat
        self._phone_clock_s = phone_clock_s

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[None]:
        self.current = stage
        self._status.begin(stage)
        started_s = self._phone_clock_s()
        try:
            if stage is not LAST_STAGE and self._cancel.is_set():
                raise Cancelled
            self._send_heartbeat()
            yield
        finally:
            seconds = _seconds_between(started_s, self._phone_clock_s())
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + seconds, 2)


def _seconds_between(start_s: float | None, end_s: float | None) -> float:
    """The phone's time between two readings of its clock, which begins anew when it restarts."""
    if start_s is None or end_s is None:
        return 0.0
    return end_s - start_s if end_s >= start_s else end_s
