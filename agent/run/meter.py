"""The seam for an external power meter: it is started before a run and asked after it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from agent.phone.phone import ClockRatio
from agent.run.energy import Points


class PowerMeter(Protocol):
    """Where an external meter fits: between supply and phone."""

    def start(self) -> None:
        """Begin to measure."""

    def stop(self) -> Sequence[tuple[float, float]]:
        """End, and answer moments of the host's monotonic clock in seconds, with watts."""


@contextmanager
def metered(meter: PowerMeter | None, clock: ClockRatio) -> Iterator[Points]:
    """Let a meter look at a run, where there is one; its points come on the phone's clock."""
    points: Points = []
    if meter is None:
        yield points
        return
    meter.start()
    try:
        yield points
    finally:
        points += [(round(1e9 * clock.to_phone_s(at_s)), w) for at_s, w in meter.stop()]
