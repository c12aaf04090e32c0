"""A snapshot of a lab for people who watch it: its state, its events, and recent readings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.app.lab_status import KnownPhone, LabView, SweepSummary
from orchestrator.planning.states import SweepState
from workloads.protocol.messages import Event

TRACE_KEPT = 240


@dataclass(frozen=True)
class PhoneTrace:
    """The last minutes of a phone: one value per heartbeat."""

    temps_c: tuple[float, ...] = ()
    clocks_ghz: tuple[float, ...] = ()
    powers_w: tuple[float, ...] = ()

    def extended(self, phone: KnownPhone) -> "PhoneTrace":
        """Return the trace with one more heartbeat."""
        clock = max((phone.status.clocks_khz or phone.status.locked_khz).values(), default=None)
        return PhoneTrace(
            _append(self.temps_c, phone.status.temp_c),
            _append(self.clocks_ghz, None if clock is None else clock / 1e6),
            _append(self.powers_w, phone.status.power_w),
        )


def _append(values: tuple[float, ...], value: float | None) -> tuple[float, ...]:
    return values if value is None else (*values[1 - TRACE_KEPT :], value)


NO_TRACE = PhoneTrace()


@dataclass(frozen=True)
class LabSnapshot:
    """The latest successful poll, the newest events, and why there is no newer poll."""

    view: LabView
    lab: str = ""
    events: tuple[Event, ...] = ()
    traces: Mapping[str, PhoneTrace] = field(default_factory=dict)
    outage: str = ""  # why the lab cannot be polled
    skipped: int = 0  # how often events came too fast to show


def state_of(sweep: SweepSummary) -> SweepState:
    """Return the state of a sweep, which is finished as soon as no run is left."""
    if sweep.finished and sweep.state is not SweepState.CANCELLED:
        return SweepState.FINISHED
    return sweep.state
