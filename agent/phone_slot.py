"""PhoneSlot: a phone of this host, its lane, the job in it, and what the heartbeat shows of it."""

import threading
import time
from typing import NamedTuple

from agent.lane_status import LaneStatus
from agent.phone.phone_driver import Phone
from agent.phone.phone_waits import Cancellation
from agent.phone.shell_command import ShellCommand, ShellResult
from workloads.protocol.base import digest_of
from workloads.protocol.messages import CoolingEstimate, Job, PhoneState, PhoneStatus
from workloads.protocol.phone_facts import PhoneFacts
from workloads.text import safe_text

FLAP_WINDOW_S = 600.0


class PhoneIdentity(NamedTuple):
    """What two transports of one phone have in common: serial numbers and the present boot."""

    serials: tuple[str, str]
    boot_id: str


class PhoneSlot:
    """A phone of this host: its lane, the job in it, and what the heartbeat shows."""

    def __init__(self, phone: Phone, facts: PhoneFacts, identity: "PhoneIdentity") -> None:
        self.phone = phone
        self.identity = identity
        self.facts = facts
        self.facts_digest = digest_of(facts.model_dump(mode="json"))
        self.here = True
        self.away_reason = ""
        self.snapshot_at = 0.0
        self.lane = threading.Lock()
        self.job: Job | None = None
        self.is_commissioned_now = False
        self.cancel = Cancellation()
        self.status = LaneStatus()
        self._losses: list[float] = []

    @property
    def is_busy(self) -> bool:
        """Whether its lane is at work: on a job, or commissioning."""
        return self.job is not None or self.is_commissioned_now

    def update_facts(self, facts: PhoneFacts) -> bool:
        """Store the present facts of the phone; return whether they changed."""
        if facts == self.facts:
            return False
        self.facts = facts
        self.facts_digest = digest_of(facts.model_dump(mode="json"))
        return True

    def mark_away(self, reason: str, now: float | None = None) -> None:
        """The phone went away."""
        self.here, self.away_reason = False, reason
        self._losses = [*self._recent_losses(), time.monotonic() if now is None else now]

    def clear_losses(self) -> None:
        """Forget how often the phone went away: it was tested since."""
        self._losses = []

    def inherit_losses(self, predecessor: "PhoneSlot | None") -> None:
        """Take over the losses of the same phone's earlier slot."""
        if predecessor is not None:
            self._losses = predecessor._losses

    def _recent_losses(self) -> list[float]:
        now = time.monotonic()
        return [lost_at for lost_at in self._losses if now - lost_at < FLAP_WINDOW_S]

    def phone_status(self) -> PhoneStatus:
        """The phone as the heartbeat shows it."""
        status, is_busy = self.status, self.is_busy
        state = PhoneState.IDLE if self.here else PhoneState.AWAY
        return PhoneStatus(
            serial=self.facts.serial,
            address=safe_text(self.phone.address, 120),
            state=PhoneState.BUSY if is_busy else state,
            reason=self.away_reason,
            facts_digest=self.facts_digest,
            run=self.job.run if self.job else None,
            stage=status.stage if is_busy else None,
            progress=status.progress if is_busy else None,
            temp_c=status.temp_c,
            battery_pct=status.battery_pct,
            cool_in_s=status.cool_in_s,
            cooling=self._cooling_estimate(),
            rest_c=self.phone.memory.rest.hottest_c if self.phone.memory.rest else None,
            remaining_s=status.remaining_s,
            steps=status.steps,
            locked_khz=dict(status.locked_khz),
            clocks_khz=dict(status.clocks_khz),
            power_w=status.power_w,
            flaps=len(self._recent_losses()),
        )

    def _cooling_estimate(self) -> CoolingEstimate | None:
        """Resting temperature and time constant, once the phone has cooled at least once."""
        posterior = self.phone.cooling.posterior
        if not posterior.coolings:
            return None
        return CoolingEstimate(rest_c=posterior.rest_c, time_constant_s=posterior.slow_s)


def read_identity(phone: Phone) -> PhoneIdentity:
    """Read what distinguishes two transports of one phone from two phones with equal serials."""
    names = ("ro.serialno", "ro.boot.serialno")
    results = phone.shell_batch([ShellCommand(["getprop", name]) for name in names])
    return PhoneIdentity((_word(results[0]), _word(results[1])), phone.boot_id())


def _word(result: ShellResult) -> str:
    return safe_text(result.text.strip(), 64) if result.status == 0 else ""
