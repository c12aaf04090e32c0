"""PhoneRegistry: the phones of this host as they come and go; every phone has a slot with a lane.

adb's list of phones is only a hint: a phone is here when it has answered a probe, and away when it
stops answering, whatever adb says.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.deadline import Deadline
from agent.lane_status import LaneStatus
from agent.phone.adb import READY, AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import load_phone_memory
from agent.phone.phone_snapshot import take_snapshot
from agent.phone.probe import probe
from agent.restore.restore_leftovers import restore_leftovers
from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts
from kernels.runner_builds import runner_for
from workloads.protocol.base import digest_of
from workloads.protocol.faults import FarmError
from workloads.protocol.messages import CoolingEstimate, Job, PhoneState, PhoneStatus
from workloads.protocol.phone_facts import PhoneFacts

log = logging.getLogger("farm.phones")

FLAP_WINDOW_S = 600.0
PROBES_AT_ONCE = 16


class PhoneSlot:
    """A phone of this host: its lane, the job in it, and what the heartbeat shows."""

    def __init__(self, phone: Phone, facts: PhoneFacts) -> None:
        self.phone = phone
        self.facts = facts
        self.facts_digest = digest_of(facts.model_dump(mode="json"))
        self.here = True
        self.away_reason = ""
        self.snapshot_at = 0.0
        self.lane = threading.Lock()
        self.job: Job | None = None
        self.cancel = threading.Event()
        self.status = LaneStatus()
        self._losses: list[float] = []

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
        status = self.status
        state = PhoneState.IDLE if self.here else PhoneState.AWAY
        return PhoneStatus(
            serial=self.facts.serial,
            state=PhoneState.BUSY if self.job else state,
            reason=self.away_reason,
            facts_digest=self.facts_digest,
            run=self.job.run if self.job else None,
            stage=status.stage if self.job else None,
            progress=status.progress if self.job else None,
            temp_c=status.temp_c,
            battery_pct=status.battery_pct,
            cool_in_s=status.cool_in_s,
            cooling=self._cooling_estimate(),
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
        host_s = posterior.slow_s / self.phone.clock_ratio.value
        return CoolingEstimate(rest_c=posterior.rest_c, time_constant_s=host_s)


class PhoneRegistry:
    """Every phone of this host."""

    def __init__(
        self,
        server: AdbServer,
        connect: Iterable[str],
        state_dir: Path,
        on_admitted: Callable[[PhoneSlot], None],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._server = server
        self._connect = tuple(connect)
        self._state_dir = state_dir
        self._on_admitted = on_admitted
        self._timeouts = timeouts
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._slots: dict[str, PhoneSlot] = {}  # by serial
        self._serial_at: dict[str, str] = {}  # address -> serial of the phone that is here
        self._last_serial_at: dict[str, str] = {}
        self._duplicates: set[str] = set()  # addresses of phones that are here under another one
        self._states: dict[str, str] = {}
        self._busy: set[str] = set()
        self._pool = ThreadPoolExecutor(PROBES_AT_ONCE, thread_name_prefix="phones")
        self._threads = [
            threading.Thread(target=target, name=target.__name__, daemon=True)
            for target in (self._track, self._maintain)
        ]

    def start(self) -> None:
        """Begin to watch for phones."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop watching and close every phone."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for slot in self.slots():
            slot.phone.close()

    def slots(self) -> list[PhoneSlot]:
        """Every slot, whether its phone is here or not."""
        with self._lock:
            return list(self._slots.values())

    def slot(self, serial: str) -> PhoneSlot | None:
        """The slot of a phone, if this host ever had it."""
        with self._lock:
            return self._slots.get(serial)

    def _track(self) -> None:
        """Follow adb's list of phones."""
        for states in self._server.track(self._stop):
            with self._lock:
                self._states = states
                self._duplicates &= states.keys()
                gone = [address for address in self._serial_at if states.get(address) != READY]
            for address in gone:
                self._mark_away(address, f"adb says {states.get(address, 'it is gone')}")
            for address, state in states.items():
                if state == READY and address not in {*self._serial_at, *self._duplicates}:
                    self._in_background(address, self.admit)

    def _maintain(self) -> None:
        """Reconnect TCP phones, retry failed admissions, and check that idle phones answer."""
        while not self._stop.is_set():
            with self._lock:
                states, serial_at = dict(self._states), dict(self._serial_at)
            for address in self._connect:
                if states.get(address) != READY:
                    self._in_background(address, self._reconnect)
            for address, state in states.items():
                if state == READY and address not in {*serial_at, *self._duplicates}:
                    self._in_background(address, self.admit)
            for address, serial in serial_at.items():
                if self._is_snapshot_due(serial):
                    self._in_background(address, self._check_idle_phone)
            self._stop.wait(self._timeouts.registry_poll_interval_s)

    def _is_snapshot_due(self, serial: str) -> bool:
        slot = self.slot(serial)
        if slot is None or slot.job is not None:
            return False
        return time.monotonic() - slot.snapshot_at > self._timeouts.idle_snapshot_interval_s

    def _in_background(self, address: str, action: Callable[[str], None]) -> None:
        """Do something with an address in the background, one action at a time."""
        with self._lock:
            if address in self._busy or self._stop.is_set():
                return
            self._busy.add(address)

        def act() -> None:
            try:
                action(address)
            except FarmError as error:
                log.warning("%s address=%s", error, address)
            finally:
                with self._lock:
                    self._busy.discard(address)

        self._pool.submit(act)

    def _reconnect(self, address: str) -> None:
        self._server.connect(address, Deadline.after(self._timeouts.adb_connect_timeout_s))

    def admit(self, address: str) -> None:
        """Probe a phone, restore what a dead lane left changed, and give the phone its slot.

        If its lane is still at work, the phone was only gone for a moment and keeps its slot.
        """
        with self._lock:
            before = self._slots.get(self._last_serial_at.get(address, ""))
            if before is not None and before.job is not None:
                before.here, before.away_reason = True, ""
                self._serial_at[address] = before.facts.serial
                return
        phone = Phone(self._server.open(address), self._timeouts)
        facts = probe(phone, runner_for)
        phone.memory = load_phone_memory(self._state_dir, facts.serial)
        facts = phone.facts = facts.model_copy(update={"gauge": phone.memory.gauge})
        with self._lock:
            duplicate = self._is_duplicate(address, facts.serial)
        # The journal of a serial must not be applied to another phone that claims the serial.
        if not duplicate and restore_leftovers(phone, self._state_dir):
            log.info("restored after an interrupted run phone=%s", facts.serial)
        with self._lock:
            if self._is_duplicate(address, facts.serial):
                phone.close()
                return
            slot = PhoneSlot(phone, facts)
            slot.inherit_losses(self._slots.get(facts.serial))
            self._slots[facts.serial] = slot
            self._serial_at[address] = self._last_serial_at[address] = facts.serial
        self._take_snapshot(slot)
        log.info("phone is here phone=%s model=%r address=%s", facts.serial, facts.model, address)
        self._on_admitted(slot)

    def _is_duplicate(self, address: str, serial: str) -> bool:
        addresses = (other for other, name in self._serial_at.items() if name == serial)
        first = next(addresses, address)
        if first != address and address not in self._duplicates:
            self._duplicates.add(address)
            text = "ignored a second phone with this serial phone=%s address=%s first_address=%s"
            log.error(text, serial, address, first)
        return first != address

    def _check_idle_phone(self, address: str) -> None:
        """Check that an idle phone still answers; one that does not is connected again."""
        with self._lock:
            slot = self._slots.get(self._serial_at.get(address, ""))
        if slot is None or not slot.lane.acquire(blocking=False):
            return
        try:
            self._take_snapshot(slot)
        except FarmError as error:
            self._mark_away(address, str(error))
            if address in self._connect:
                self._server.disconnect(address)
        finally:
            slot.lane.release()

    def _take_snapshot(self, slot: PhoneSlot) -> None:
        deadline = Deadline.after(self._timeouts.idle_snapshot_timeout_s)
        slot.status.show_snapshot(take_snapshot(slot.phone, deadline))
        slot.snapshot_at = time.monotonic()

    def _mark_away(self, address: str, reason: str) -> None:
        with self._lock:
            slot = self._slots.get(self._serial_at.pop(address, ""))
            self._duplicates.clear()  # one of them may be the same phone on its other cable
        if slot is not None:
            log.warning("phone is away: %s phone=%s", reason, slot.facts.serial)
            slot.mark_away(reason)
            slot.phone.close()  # a lane that is still at work opens it again
