"""What is wrong in a lab, and what helps: status and doctor show the same list. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.app.lab_status import KnownPhone, LabView
from orchestrator.app.screen.waiting_sweep import availability_of
from orchestrator.planning.states import PhoneAvailability, SweepState
from workloads.units import count_text

_NEXT = {
    PhoneAvailability.QUARANTINED: "farm phone release {}",
    PhoneAvailability.HELD: "farm phone check {}",
    PhoneAvailability.AWAY: "check its cable, USB debugging and its host",
}


def phone_advice(state: PhoneAvailability, serials: Sequence[str]) -> str:
    """Return what to do about phones in a state; empty if nothing is wrong."""
    shown = serials[0] if len(serials) == 1 else "SERIAL"
    return _NEXT.get(state, "").format(shown)


@dataclass(frozen=True)
class LabProblem:
    """One thing that is wrong: where, what, and what to do."""

    subject: str
    text: str
    fix: str = ""


def phone_problems(view: LabView) -> Iterator[LabProblem]:
    """Yield the phones that get no runs until a person or a check returns them."""
    for item in view.problems:
        what, _, fix = item.text.rpartition("; ")
        subject = f"{item.address} on {item.host}"
        yield LabProblem(subject, f"cannot be used: {what or item.text}", fix if what else "")
    for phone in view.phones:
        state = phone.availability or availability_of(phone, view.at, view.drained)
        if state in _NEXT:
            text = f"{state}{_reason(phone, state)}"
            yield LabProblem(phone.serial, text, phone_advice(state, [phone.serial]))
    for host in view.drained:
        yield LabProblem(host, "drained", f"farm host drain {host} --off")


def lab_problems(view: LabView) -> Iterator[LabProblem]:
    """Yield everything that is wrong, with what to do."""
    for notice in view.host_problems:
        yield LabProblem(notice.host, notice.text)
    yield from phone_problems(view)
    for sweep in (*view.sweeps, *view.others):
        if sweep.left and sweep.state is SweepState.PAUSED:
            reason = f": {sweep.state_reason}" if sweep.state_reason else ""
            yield LabProblem(sweep.id, f"paused{reason}", f"farm sweep resume {sweep.id}")
        if sweep.failed:
            see = f"farm trial list {sweep.id} --state failed"
            yield LabProblem(sweep.id, count_text(sweep.failed, "failed run"), see)


def _reason(phone: KnownPhone, state: PhoneAvailability) -> str:
    reason = phone.status.reason if state is PhoneAvailability.AWAY else phone.health_reason
    return f": {reason}" if reason else ""
