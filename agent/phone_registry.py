"""PhoneRegistry: the phones of this host as they come and go; every phone has a slot with a lane.

adb's list of phones is only a hint: a phone is here when it has answered a probe, and away when it
stops answering, whatever adb says.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from agent.deadline import Deadline
from agent.phone.adb import ABSENT, AdbServer
from agent.phone.phone_driver import Phone
from agent.phone.phone_memory import load_phone_memory, save_phone_memory
from agent.phone.phone_snapshot import take_snapshot, with_battery_level
from agent.phone.probe import probe
from agent.phone_problems import TRANSIENT_PROBLEMS, PhoneProblems
from agent.phone_slot import PhoneIdentity, PhoneSlot, read_identity
from agent.restore.restore_leftovers import restore_leftovers
from agent.timed_places import TimedPlaces
from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts
from kernels.runner_builds import runner_for
from workloads.protocol.base import digest_of
from workloads.protocol.faults import FarmError, Hung
from workloads.protocol.phone_address import is_over_network, parse_phone_address
from workloads.protocol.unusable_phone import (
    READY,
    PhoneProblem,
    UnusablePhone,
    problem_of_state,
)

log = logging.getLogger("farm.phones")

PROBES_AT_ONCE, PROBE_EXPECTED_S = 16, 1.5  # phones that do not answer delay no other phone
ADDRESSES_MAX = 400
GONE = "adb no longer lists it; check its cable and power"


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
        self._state_dir = state_dir
        self._added_file = state_dir / "addresses.json"
        self._added = _read_addresses(self._added_file)
        self._connect = {*connect, *self._added}
        self._on_admitted = on_admitted
        self._timeouts = timeouts
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._slots: dict[str, PhoneSlot] = {}  # by serial
        self._serial_at: dict[str, str] = {}  # address -> serial of the phone that is here
        self._last_serial_at: dict[str, str] = {}
        self._second_at: dict[str, str] = {}  # further addresses of phones that are here
        self._states: dict[str, str] = {}
        self._busy: set[str] = set()
        self._problems = PhoneProblems(timeouts.registry_poll_interval_s)
        self._pool = ThreadPoolExecutor(ADDRESSES_MAX, thread_name_prefix="phones")
        self._places = TimedPlaces(PROBES_AT_ONCE, PROBE_EXPECTED_S)
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

    def unusable(self) -> list[UnusablePhone]:
        """The phones that never had a slot and cannot be used; others show why they are away."""
        problems = self._problems.list()
        with self._lock:
            return [found for at, found in problems.items() if at not in self._last_serial_at]

    def add_address(self, address: str) -> str | None:
        """Connect a phone over the network now and after every start; return its serial.

        None means that it cannot be used; `problem_at` returns the reason.
        """
        self._connect.add(address)
        self._save_added({*self._added, address})
        self._problems.clear(address)
        self._reconnect(address)
        deadline = Deadline.after(self._timeouts.probe_timeout_s)
        while not deadline.expired:
            with self._lock:
                serial = self._serial_at.get(address) or self._second_at.get(address)
            problem = self.problem_at(address)
            if serial is not None or (problem and problem.problem not in TRANSIENT_PROBLEMS):
                return serial
            if problem is not None:
                deadline = deadline.within(self._timeouts.shell_open_timeout_s)
            time.sleep(0.05)
        return None

    def remove_address(self, address: str) -> None:
        """Disconnect a phone that was added."""
        self._connect.discard(address)
        self._save_added(self._added - {address})
        self._server.disconnect(address)
        self._problems.clear(address)

    def _save_added(self, addresses: set[str]) -> None:
        self._added = addresses
        self._added_file.parent.mkdir(parents=True, exist_ok=True)
        part = self._added_file.with_suffix(".part")
        part.write_text(json.dumps(sorted(addresses)))
        part.replace(self._added_file)

    def problem_at(self, address: str) -> UnusablePhone | None:
        """Why the phone at an address cannot be used."""
        return self._problems.list().get(address)

    def _track(self) -> None:
        """Follow adb's list of phones."""
        for states in self._server.track(self._stop):
            with self._lock:
                before, self._states = self._states, states
                gone = [address for address in self._serial_at if states.get(address) != READY]
                for address in [at for at in self._second_at if states.get(at) != READY]:
                    del self._second_at[address]
            self._problems.keep_only({*states, *self._connect})
            for address, state in states.items():
                problem = problem_of_state(state)
                if problem is not None:
                    self._note(address, problem)
                elif before.get(address) != READY:
                    self._problems.clear(address)
            for address in gone:
                problem = problem_of_state(states.get(address, "")) or PhoneProblem.OFFLINE
                listed = address in states
                reason = UnusablePhone(address="", problem=problem).advice if listed else GONE
                self._mark_away(address, reason)
            self._admit_new_phones(states)

    def _maintain(self) -> None:
        """Reconnect TCP phones, retry failed admissions, and check that idle phones answer."""
        while not self._stop.is_set():
            with self._lock:
                states, serial_at = dict(self._states), dict(self._serial_at)
            for address in tuple(self._connect):
                if states.get(address) != READY:
                    self._in_background(address, self._reconnect)
            self._admit_new_phones(states)
            for address, serial in serial_at.items():
                if self._is_snapshot_due(serial):
                    self._in_background(address, self._check_idle_phone)
            self._stop.wait(self._timeouts.registry_poll_interval_s)

    def _admit_new_phones(self, states: dict[str, str]) -> None:
        with self._lock:
            known = {*self._serial_at, *self._second_at}
        for address, state in states.items():
            if state == READY and address not in known and self._problems.is_due(address):
                self._in_background(address, self._try_to_admit)

    def _is_snapshot_due(self, serial: str) -> bool:
        slot = self.slot(serial)
        if slot is None or slot.is_busy:
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
                with self._places.place():
                    action(address)
            except FarmError as error:
                log.warning("%s address=%s", error, address)
            finally:
                with self._lock:
                    self._busy.discard(address)

        self._pool.submit(act)

    def _reconnect(self, address: str) -> None:
        deadline = Deadline.after(self._timeouts.adb_connect_timeout_s)
        try:
            state = self._server.connect(address, deadline)
        except Hung:  # it accepts connections and does not answer
            state = ABSENT
        if state == READY or address not in self._connect:
            return
        problem = problem_of_state(state) if state != ABSENT else PhoneProblem.UNREACHABLE
        self._note(address, problem or PhoneProblem.UNREACHABLE)

    def _note(self, address: str, problem: PhoneProblem, text: str = "") -> None:
        """Show why a phone cannot be used: in its slot if it ever had one."""
        unusable = self._problems.note(address, problem, text)
        with self._lock:
            slot = self._slots.get(self._last_serial_at.get(address, ""))
            if slot is not None and not slot.here:
                slot.away_reason = unusable.advice

    def _try_to_admit(self, address: str) -> None:
        """Admit a phone; one that fails is shown, and tried again ever more rarely."""
        try:
            self.admit(address)
        except FarmError as error:
            self._problems.postpone(address)
            self._note(address, PhoneProblem.PROBE_FAILED, str(error))

    def admit(self, address: str) -> None:
        """Probe a phone, restore what a dead lane left changed, and give the phone its slot.

        If its lane is still at work, the phone was only gone for a moment and keeps its slot.
        """
        phone = Phone(self._server.open(address), self._timeouts)
        identity = read_identity(phone)
        if self._is_known_phone(address, identity):
            phone.close()
            self._problems.clear(address)
            return
        facts = probe(phone, runner_for)
        phone.memory = load_phone_memory(self._state_dir, facts.serial)
        known = {"gauge": phone.memory.gauge, "commission": phone.memory.commission}
        facts = phone.facts = phone.facts.model_copy(update=known)
        if self._is_duplicate(address, facts.serial):
            phone.close()
            return
        # The journal of a serial must not be applied to another phone that claims the serial.
        if restore_leftovers(phone, self._state_dir):
            log.info("restored after an interrupted run phone=%s", facts.serial)
        with self._lock:
            if facts.serial in self._serial_at.values():  # it came in between on another address
                phone.close()
                return
            slot = PhoneSlot(phone, facts, identity)
            slot.inherit_losses(self._slots.get(facts.serial))
            self._slots[facts.serial] = slot
            self._serial_at[address] = self._last_serial_at[address] = facts.serial
        self._problems.clear(address)
        self._remember_cable(address)
        self._take_snapshot(slot)
        self._keep_battery_hours(slot)
        log.info("phone connected phone=%s model=%r address=%s", facts.serial, facts.model, address)
        self._on_admitted(slot)

    def _remember_cable(self, address: str) -> None:
        """Leave a note for `farm doctor`: this phone was on USB here."""
        if not is_over_network(address):
            folder = self._state_dir / "usb"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / digest_of(address)[:16]).write_text(address)

    def _is_known_phone(self, address: str, identity: PhoneIdentity) -> bool:
        """Whether a phone is here on another transport, or its lane waits for it."""
        with self._lock:
            same = (at for at in self._slots.values() if at.identity == identity)
            slot = next(same, None) if any(identity.serials) else None
            last = self._slots.get(self._last_serial_at.get(address, ""))
            if slot is None and last is not None and last.identity.serials == identity.serials:
                slot = last if last.is_busy else None  # it restarted during its run
            if slot is None or not (slot.here or slot.is_busy):
                return False
            serial = slot.facts.serial
            if slot.here and self._serial_at.get(address) != serial:
                self._second_at[address] = self._last_serial_at[address] = serial
                text = "second connection of a phone phone=%s address=%s first_address=%s"
                log.info(text, serial, address, slot.phone.address)
                return True
            slot.identity = identity
            self._use(slot, address)
            return True

    def _use(self, slot: PhoneSlot, address: str) -> None:
        """Reach a phone by this address from now on; the caller holds the lock."""
        slot.phone.move_to(address)
        slot.here, slot.away_reason = True, ""
        self._serial_at[address] = self._last_serial_at[address] = slot.facts.serial
        self._second_at.pop(address, None)

    def _is_duplicate(self, address: str, serial: str) -> bool:
        """Whether another phone, which is here, has this serial number."""
        with self._lock:
            addresses = (other for other, name in self._serial_at.items() if name == serial)
            first = next(addresses, address)
        if first == address:
            return False
        self._problems.postpone(address)
        self._note(address, PhoneProblem.SAME_SERIAL, f"{serial} is at {first} already")
        return True

    def _check_idle_phone(self, address: str) -> None:
        """Check that an idle phone still answers; one that does not is connected again."""
        with self._lock:
            slot = self._slots.get(self._serial_at.get(address, ""))
        if slot is None or not slot.lane.acquire(blocking=False):
            return
        try:
            self._prefer_cable(slot, address)
            self._take_snapshot(slot)
            if self._keep_battery_hours(slot):
                self._on_admitted(slot)
        except FarmError as error:
            self._mark_away(slot.phone.address, str(error))
            if address in self._connect:
                self._server.disconnect(address)
        finally:
            slot.lane.release()

    def _prefer_cable(self, slot: PhoneSlot, address: str) -> None:
        """Use the cable of an idle phone that is connected over Wi-Fi too."""
        if not is_over_network(address):
            return
        with self._lock:
            seconds = [at for at, name in self._second_at.items() if name == slot.facts.serial]
            wired = next((at for at in seconds if not is_over_network(at)), None)
            if wired is not None:
                del self._serial_at[address]
                self._second_at[address] = slot.facts.serial
                self._use(slot, wired)

    def _take_snapshot(self, slot: PhoneSlot) -> None:
        deadline = Deadline.after(self._timeouts.idle_snapshot_timeout_s)
        snapshot = with_battery_level(slot.phone, take_snapshot(slot.phone, deadline))
        slot.status.show_snapshot(snapshot)
        slot.snapshot_at = time.monotonic()

    def _keep_battery_hours(self, slot: PhoneSlot) -> bool:
        """Save the memory of a phone whose battery was watched for another hour."""
        changed = slot.update_facts(slot.phone.facts)
        if changed:
            save_phone_memory(self._state_dir, slot.facts.serial, slot.phone.memory)
        return changed

    def _mark_away(self, address: str, reason: str) -> None:
        with self._lock:
            slot = self._slots.get(self._serial_at.pop(address, ""))
            if slot is None:
                return
            serial = slot.facts.serial
            second = next((at for at, name in self._second_at.items() if name == serial), None)
            if second is not None:
                self._use(slot, second)
        if second is not None:
            text = "connection lost, using another one phone=%s lost_address=%s address=%s"
            log.warning(text, serial, address, second)
            return
        log.warning("phone disconnected: %s phone=%s", reason, serial)
        slot.mark_away(reason)
        slot.phone.close()  # a lane that is still at work opens it again


def _read_addresses(file: Path) -> set[str]:
    """Read the addresses that were added with `farm phone connect`; damaged ones are dropped."""
    with suppress(OSError, ValueError, TypeError):
        return {parse_phone_address(str(address)) for address in json.loads(file.read_text())}
    return set()
