"""The status of the lab as the scheduler publishes it: a strict message, like every other one."""

from pydantic import Field

from workloads.protocol.base import Moment, SafeText, WireModel


class UnhealthyPhone(WireModel):
    """A phone that gets no runs, and why."""

    phone: SafeText
    health: SafeText
    reason: SafeText


class SweepStatus(WireModel):
    """A sweep in one line."""

    id: SafeText
    name: SafeText
    state: SafeText
    reason: SafeText
    total: int
    done: int
    failed: int
    left: int


class HostNotice(WireModel):
    """Something about a host that an operator should know: a code, and the text for people."""

    host: SafeText
    problem: SafeText
    text: SafeText


class NoticeLine(WireModel):
    """A notice in one line."""

    id: int
    kind: SafeText
    text: SafeText


class LabStatus(WireModel):
    """Hosts with their last heartbeat, phones by state, and the newest sweeps."""

    at: Moment
    hosts: dict[str, Moment] = Field(default_factory=dict)
    problems: tuple[HostNotice, ...] = ()
    phones: dict[str, int] = Field(default_factory=dict)
    unhealthy: tuple[UnhealthyPhone, ...] = ()
    drained: tuple[SafeText, ...] = ()
    sweeps: tuple[SweepStatus, ...] = ()
    notices: tuple[NoticeLine, ...] = ()
