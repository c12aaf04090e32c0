"""The roster: phones come and go, and each one that is here has a place with a lane of its own.

adb's word that a phone is there is only a hint: a phone counts as here when it answered a probe,
and it counts as away when it stops answering, whatever adb says.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from agent.control.cooldown import glance
from agent.control.journal import restore_leftovers
from agent.deadline import Deadline
from agent.lane_view import LaneView
from agent.phone.adb import READY, AdbServer
from agent.phone.memory import recall
from agent.phone.phone import Phone
from agent.phone.probe import probe
from kernels.manifest import runner_for
from workloads.fault import FarmError
from workloads.messages import Job, PhonePresence
from workloads.noun import digest_of
from workloads.phone import PhoneFacts

log = logging.getLogger("farm.roster")

CONNECT_S = 5.0
GLANCE_S = 3.0
LOOK_EVERY_S = 2.0
GLANCE_EVERY_S = 5.0
FLAPPING_S = 600.0


class Place:
    """A phone's place: its lane, who is in it, and what can be seen from outside."""

    def __init__(self, phone: Phone, facts: PhoneFacts) -> None:
        self.phone = phone
        self.facts = facts
        self.facts_digest = digest_of(facts.model_dump(mode="json"))
        self.here = True
        self.why = ""
        self.seen_s = 0.0
        self.lane = threading.Lock()
        self.job: Job | None = None
        self.cancel = threading.Event()
        self.view = LaneView()
        self._lost_at: list[float] = []

    def learn(self, facts: PhoneFacts) -> bool:
        """Take over what is known of the phone now; say whether that is news."""
        if facts == self.facts:
            return False
        self.facts = facts
        self.facts_digest = digest_of(facts.model_dump(mode="json"))
        return True

    def lost(self, why: str) -> None:
        """It went away."""
        self.here, self.why = False, why
        self._lost_at = [*self._recent_losses(), time.monotonic()]

    def forgive(self) -> None:
        """Forget how often it went away: it has been looked at since."""
        self._lost_at = []

    def inherit(self, before: "Place | None") -> None:
        """Take over the record of the same phone's place before it was lost."""
        if before is not None:
            self._lost_at = before._lost_at

    def _recent_losses(self) -> list[float]:
        return [at for at in self._lost_at if time.monotonic() - at < FLAPPING_S]

    def presence(self) -> PhonePresence:
        """The phone as the heartbeat shows it."""
        view = self.view
        state: Literal["idle", "busy", "away"] = "idle" if self.here else "away"
        return PhonePresence(
            serial=self.facts.serial,
            state="busy" if self.job else state,
            why=self.why,
            facts_digest=self.facts_digest,
            run=self.job.run if self.job else None,
            stage=view.stage if self.job else "",
            progress=view.progress if self.job else None,
            temp_c=view.temp_c,
            battery_pct=view.battery_pct,
            ready_s=view.ready_s,
            cools=self._cools(),
            left_s=view.left_s,
            steps=view.steps,
            locked_khz=dict(view.locked_khz),
            clocks_khz=dict(view.clocks_khz),
            power_w=view.power_w,
            flaps=len(self._recent_losses()),
        )

    def _cools(self) -> tuple[float, float] | None:
        """Where the phone comes to rest and how fast, once a cooling has been seen."""
        known = self.phone.heat.known
        return (known.rest_c, known.slow_s / self.phone.clock.value) if known.coolings else None


class Roster:
    """Every phone of this host."""

    def __init__(
        self,
        server: AdbServer,
        connect: Iterable[str],
        state_dir: Path,
        admitted: Callable[[Place], None],
    ) -> None:
        self._server = server
        self._connect = tuple(connect)
        self._state_dir = state_dir
        self._admitted = admitted
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._places: dict[str, Place] = {}
        self._serial_at: dict[str, str] = {}
        self._last_at: dict[str, str] = {}
        self._twins: set[str] = set()  # addresses whose phone is here already, under another one
        self._states: dict[str, str] = {}
        self._busy: set[str] = set()
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="roster")
        self._threads = [
            threading.Thread(target=target, name=target.__name__, daemon=True)
            for target in (self._watch, self._look_after)
        ]

    def start(self) -> None:
        """Begin watching."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop watching and let go of every phone."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for place in self.places():
            place.phone.close()

    def places(self) -> list[Place]:
        """Every place, whether its phone is here or not."""
        with self._lock:
            return list(self._places.values())

    def place(self, serial: str) -> Place | None:
        """The place of a phone, if this host ever had it."""
        with self._lock:
            return self._places.get(serial)

    def _watch(self) -> None:
        for states in self._server.track(self._stop):
            with self._lock:
                self._states = states
                self._twins &= states.keys()
                gone = [at for at in self._serial_at if states.get(at) != READY]
            for address in gone:
                self._lose(address, f"adb says {states.get(address, 'it is gone')}")
            for address, state in states.items():
                if state == READY and address not in {*self._serial_at, *self._twins}:
                    self._once(address, self._admit)

    def _look_after(self) -> None:
        """Bring TCP phones back, admit those that failed before, and see who still answers."""
        while not self._stop.is_set():
            with self._lock:
                states, at = dict(self._states), dict(self._serial_at)
            for address in self._connect:
                if states.get(address) != READY:
                    self._once(address, self._reach)
            for address, state in states.items():
                if state == READY and address not in {*at, *self._twins}:
                    self._once(address, self._admit)
            for address, serial in at.items():
                place = self.place(serial)
                due = place is not None and time.monotonic() - place.seen_s > GLANCE_EVERY_S
                if place is not None and place.job is None and due:
                    self._once(address, self._glance)
            self._stop.wait(LOOK_EVERY_S)

    def _once(self, address: str, what: Callable[[str], None]) -> None:
        """Do something with an address in the background, one thing at a time."""
        with self._lock:
            if address in self._busy or self._stop.is_set():
                return
            self._busy.add(address)

        def doing() -> None:
            try:
                what(address)
            except FarmError as error:
                log.warning("%s", error)
            finally:
                with self._lock:
                    self._busy.discard(address)

        self._pool.submit(doing)

    def _reach(self, address: str) -> None:
        self._server.connect(address, Deadline.after(CONNECT_S))

    def _admit(self, address: str) -> None:
        """Probe a phone, put back what a dead lane left changed, and give it its place.

        A phone that was only gone for a moment, with its lane still at work, is the lane's.
        """
        with self._lock:
            before = self._places.get(self._last_at.get(address, ""))
            if before is not None and before.job is not None:
                before.here, before.why = True, ""
                self._serial_at[address] = before.facts.serial
                return
        phone = Phone(self._server.open(address))
        facts = probe(phone, runner_for)
        phone.memory = recall(self._state_dir, facts.serial)
        facts = phone.facts = facts.model_copy(update={"gauge": phone.memory.gauge})
        with self._lock:
            twin = self._is_twin(address, facts.serial)
        # What lies in the journal under a serial is no business of whoever else claims it.
        if not twin and restore_leftovers(phone, self._state_dir):
            log.info("%s was left changed and has been put back", facts.serial)
        with self._lock:
            if self._is_twin(address, facts.serial):
                phone.close()
                return
            before = self._places.get(facts.serial)
            place = self._places[facts.serial] = Place(phone, facts)
            place.inherit(before)
            self._serial_at[address] = self._last_at[address] = facts.serial
        self._see(place)
        log.info("%s (%s) is here", facts.serial, facts.model)
        self._admitted(place)

    def _is_twin(self, address: str, serial: str) -> bool:
        here = next((at for at, has in self._serial_at.items() if has == serial), address)
        if here != address and address not in self._twins:
            self._twins.add(address)
            log.error("%s is at %s and shows up at %s: ignored", serial, here, address)
        return here != address

    def _glance(self, address: str) -> None:
        """See whether an idle phone still answers; one that does not is reached for anew."""
        with self._lock:
            place = self._places.get(self._serial_at.get(address, ""))
        if place is None or not place.lane.acquire(blocking=False):
            return
        try:
            self._see(place)
        except FarmError as error:
            self._lose(address, str(error))
            if address in self._connect:
                self._server.disconnect(address)
        finally:
            place.lane.release()

    def _see(self, place: Place) -> None:
        seen = glance(place.phone, Deadline.after(GLANCE_S))
        place.view.temp_c, place.view.battery_pct = seen.temp_c, seen.battery_pct
        place.seen_s = time.monotonic()

    def _lose(self, address: str, why: str) -> None:
        with self._lock:
            place = self._places.get(self._serial_at.pop(address, ""))
            self._twins.clear()  # one of them may be the same phone on its other cable
        if place is not None:
            log.warning("%s is away: %s", place.facts.serial, why)
            place.lost(why)
            place.phone.close()  # a lane that is still at work opens it again
