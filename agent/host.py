"""The agent of a host: spool, post, roster and heartbeat put together, and what a job does here."""

import fcntl
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.broker import Broker
from agent.control.health import check_up, put_back_by_hand
from agent.desk import Desk, Outcome
from agent.lane import attempt, case_digest
from agent.phone.adb import AdbServer
from agent.post import Post
from agent.roster import Place, Roster
from agent.run.tuning import tune_phone
from agent.spool import Spool
from kernels.manifest import runner_for
from workloads.fault import (
    BrokerDown,
    Cancelled,
    FarmError,
    Interrupted,
    LeaseLost,
    PhoneAway,
)
from workloads.messages import (
    FILE_MARK,
    JOB_BYTES_MAX,
    AnyParcel,
    BadMessage,
    ByHand,
    Checkup,
    Chunk,
    Command,
    Job,
    Presence,
    Report,
    RunId,
    Sighting,
    chunks_of,
    decode,
)
from workloads.noun import digest_of_bytes

log = logging.getLogger("farm.agent")

BEAT_S = 1.0
BEAT_GAP_S = 0.1
DRAIN_S = 3.0
CANCELLED_MAX = 200  # they are told again and again; only those that wait for a lane matter
LANE_PATIENCE_S = 2.0  # a glance at an idle phone holds its lane for a moment


@dataclass(frozen=True)
class HostSettings:
    """What an agent needs to know."""

    host: str
    broker: str
    state_dir: Path
    connect: tuple[str, ...] = ()
    slots: int = 60
    files: Path | None = None


class HostAgent:
    """Everything an agent does, apart from taking messages."""

    def __init__(
        self,
        settings: HostSettings,
        server: AdbServer,
        send: Callable[[Sequence[str]], None],
    ) -> None:
        self.settings = settings
        self._server = server
        self._broker = Broker(settings.broker, settings.host)
        self._spool = Spool(settings.state_dir / "spool.db")
        self._post = Post(self._spool, Broker(settings.broker, settings.host), send)
        self._roster = Roster(server, settings.connect, settings.state_dir, self._announce)
        self._stop = threading.Event()
        self._leaving = False
        self._cancelled: list[RunId] = []
        self._changed = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Tell what a predecessor left undone, then begin."""
        self._server.start()
        for text in self._spool.interrupted():
            try:
                job = decode(Job, text, JOB_BYTES_MAX)
            except BadMessage as error:  # of another version: its lease runs out by itself
                log.warning("a run of before cannot be told of: %s", error)
                continue
            self._finish(job.run, failed(self.settings.host, job, Interrupted(), "running"))
        self._post.start()
        self._roster.start()
        self._beating.start()

    def stop(self) -> None:
        """Take nothing new, cancel what runs, put phones back, send what can be sent, and go."""
        self._leaving = True
        self._changed.set()
        for place in self._roster.places():
            place.cancel.set()
        for place in self._roster.places():
            place.lane.acquire(timeout=30)
        self._post.drained(DRAIN_S)
        self._stop.set()
        self._changed.set()
        self._beating.join()
        self._post.stop()
        self._roster.stop()
        self._spool.close()
        self._server.stop()

    def run(self, job: Job) -> None:
        """Make one run and see to it that its report arrives. A doubled job is dropped here."""
        if not self._spool.begin(job.run, job.model_dump_json()):
            log.info("%s was started before: dropped", job.run)
            return
        place = self._roster.place(job.phone)
        if place is None or not place.here:
            away = PhoneAway(f"{job.phone} is not at this host now")
            self._finish(job.run, failed(self.settings.host, job, away, "starting"))
            return
        try:
            with self._in_lane(place, job):
                self._finish(job.run, self._attempt(place, job))
        except FarmError as error:
            self._finish(job.run, failed(self.settings.host, job, error, "starting"))

    def command(self, command: Command) -> None:
        """Do what is asked; doing it twice is doing it once."""
        if command.verb == "announce":
            for place in self._roster.places():
                self._announce(place)
        elif command.verb == "cancel":
            if command.run is not None:
                self._cancel(command.run)
        elif command.phone is not None and command.id:
            self._look_after(command.phone, command.verb, command)

    def _cancel(self, run: RunId) -> None:
        """Stop a run that is under way; one that has not begun will not begin."""
        self._cancelled = [*self._cancelled[-CANCELLED_MAX:], run]  # before the look, as in a lane
        for place in self._roster.places():
            if place.job is not None and place.job.run == run:
                place.cancel.set()

    def _look_after(self, serial: str, verb: ByHand, command: Command) -> None:
        """Restore, check or tune a phone by hand, and answer; one at work is left to its work."""
        good, text, file = self._looked_after(serial, command)
        blob = (file or "").encode()
        digest = digest_of_bytes(blob)
        found = Checkup(
            host=self.settings.host,
            phone=serial,
            id=command.id,
            verb=verb,
            at=datetime.now(UTC),
            good=good,
            text=f"{text} {FILE_MARK}{digest}" if file else text,
        )
        parcels: list[AnyParcel] = [*(chunks_of(digest, blob) if file else []), found]
        self._spool.add(parcels)
        self._post.post(parcels)

    def _looked_after(self, serial: str, command: Command) -> tuple[bool, str, str | None]:
        place = self._roster.place(serial)
        if place is None or not place.here:
            return False, f"{serial} is not at {self.settings.host} now.", None
        if not place.lane.acquire(timeout=LANE_PATIENCE_S):
            return False, f"{serial} is at work; cancel its run first.", None
        state_dir = self.settings.state_dir
        try:
            with lane_lock(state_dir, serial):
                if command.verb == "restore":
                    return *put_back_by_hand(place.phone, state_dir), None
                if command.verb == "tune":
                    return tune_phone(place.phone, state_dir, runner_for, command.sizes)
                found = check_up(place.phone, state_dir, runner_for)
                place.forgive()
                return *found, None
        except FarmError as error:
            return False, str(error), None
        finally:
            place.lane.release()

    def _attempt(self, place: Place, job: Job) -> Outcome:
        desk = Desk(
            host=self.settings.host,
            state_dir=self.settings.state_dir,
            runner_for=runner_for,
            cancel=place.cancel,
            view=place.view,
            files=self.settings.files,
        )
        outcome = attempt(job, place.phone, desk)
        if place.learn(place.phone.known):  # a first run teaches how the gauge speaks
            self._announce(place)
        return outcome

    @contextmanager
    def _in_lane(self, place: Place, job: Job) -> Iterator[None]:
        """Hold the phone's lane: in this process, and against any other of this host."""
        if not place.lane.acquire(timeout=job.lease_s):
            raise LeaseLost(f"the lane of {job.phone} did not get free within the lease")
        try:
            with lane_lock(self.settings.state_dir, job.phone):
                place.cancel.clear()
                if self._leaving:  # set before every cancel, so one of the two is seen
                    raise Interrupted("The agent is stopping.")
                place.job = job
                if job.run in self._cancelled:
                    raise Cancelled
                self._changed.set()
                yield
        finally:
            place.job = None
            self._changed.set()
            place.lane.release()

    def _finish(self, run: RunId, outcome: Outcome) -> None:
        """Keep the report and what belongs to it, then send it: in this order."""
        parcels: list[Report | Chunk] = []
        if outcome.telemetry is not None and outcome.report.telemetry is not None:
            parcels += chunks_of(outcome.report.telemetry, outcome.telemetry)
        parcels.append(outcome.report)
        self._spool.end(run, parcels)
        self._post.post(parcels)

    def _announce(self, place: Place) -> None:
        sighting = Sighting(
            host=self.settings.host, facts=place.facts, facts_digest=place.facts_digest
        )
        self._spool.add([sighting])
        self._post.post([sighting])
        self._changed.set()

    def _beat(self) -> None:
        """Show life every second, and at once when something changed."""
        deaf = False
        while not self._stop.is_set():
            self._changed.clear()
            try:
                self._broker.beat(self._presence())
                deaf = False
            except BrokerDown as error:
                if not deaf:
                    log.warning("%s", error)
                deaf = True
            except Exception:  # one odd phone must not silence the whole host
                log.exception("no heartbeat")
            self._stop.wait(BEAT_GAP_S)
            self._changed.wait(BEAT_S - BEAT_GAP_S)
        try:
            self._broker.leave()
        except BrokerDown:
            log.info("the broker is gone; the heartbeat expires by itself")

    def _presence(self) -> Presence:
        places = [] if self._leaving else self._roster.places()
        return Presence(
            host=self.settings.host,
            at=datetime.now(UTC),
            slots=self.settings.slots,
            phones=tuple(place.presence() for place in places),
        )


def failed(host: str, job: Job, error: FarmError, stage: str) -> Outcome:
    """A report that only says why there is nothing to report."""
    now = datetime.now(UTC)
    report = Report(
        run=job.run,
        host=host,
        phone=job.phone,
        case_digest=case_digest(job.case),
        condition_digest=job.condition.digest,
        started_at=now,
        ended_at=now,
        fault=error.fault(stage),
    )
    return Outcome(report=report, telemetry=None)


@contextmanager
def lane_lock(state_dir: Path, serial: str) -> Iterator[None]:
    """Lock a phone against other processes: a frozen agent keeps its lock, so nobody overtakes."""
    folder = state_dir / "lanes"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / serial.replace(":", "_")).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LeaseLost(f"another process of this host holds {serial}") from None
        yield
