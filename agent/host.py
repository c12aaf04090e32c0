"""HostAgent: executes jobs and commands on the phones of one host, and sends the reports.

Reports are on disk before they are sent. agent/worker.py receives the messages.
"""

import fcntl
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from agent.commission import commission_phone, is_commissioning_due
from agent.deadline import Deadline
from agent.heartbeat import HeartbeatSender
from agent.host_broker import HostBroker
from agent.host_settings import HostSettings
from agent.lane import case_digest, run_attempt
from agent.lane_context import LaneContext, LaneResult
from agent.launch.opencl_tuning import tune_phone
from agent.outbox import Outbox
from agent.phone.adb import AdbServer
from agent.phone_registry import PhoneRegistry
from agent.phone_slot import PhoneSlot
from agent.prepare.selftest import restore_on_request, run_selftest
from agent.spool import Spool
from kernels.runner_builds import runner_for
from workloads.lab.logging_setup import log_values
from workloads.lab.service_health import ServiceHealth
from workloads.lab.service_metrics import Service
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import (
    Cancelled,
    FarmError,
    Interrupted,
    LeaseLost,
    PhoneAway,
)
from workloads.protocol.limits import JOB_BYTES_MAX
from workloads.protocol.messages import (
    NO_PHONE,
    AnyParcel,
    BadMessage,
    Chunk,
    Command,
    CommandKind,
    CommandResult,
    Job,
    PhoneAnnouncement,
    Report,
    RunId,
    decode,
    split_into_chunks,
)
from workloads.protocol.stage import Stage
from workloads.protocol.unusable_phone import PhoneProblem

log = logging.getLogger("farm.agent")

CANCELLED_MAX = 200  # cancels are repeated; only those of jobs that wait for a lane matter


class HostAgent:
    """The agent of one host: phone registry, lanes, spool, outbox and heartbeat."""

    def __init__(
        self,
        settings: HostSettings,
        server: AdbServer,
        send: Callable[[Sequence[str]], None],
        health: ServiceHealth | None = None,
    ) -> None:
        self.settings = settings
        self._health = health or ServiceHealth(Service.AGENT)
        self._metrics = self._health.metrics
        self._timeouts = settings.timeouts
        self._server = server
        self._spool = Spool(settings.state_dir / "spool.db")
        confirmations = HostBroker(settings.broker, settings.host)
        self._outbox = Outbox(self._spool, confirmations, send, settings.timeouts)
        self._registry = PhoneRegistry(
            server, settings.connect, settings.state_dir, self._announce, settings.timeouts
        )
        self._stopping = False
        self._cancelled: list[RunId] = []
        self.heartbeat = HeartbeatSender(
            settings, self._registry, self._outbox.unconfirmed_runs, self._health
        )

    def start(self) -> None:
        """Report the runs that an earlier agent did not finish, then begin."""
        self._server.start()
        for text in self._spool.interrupted_jobs():
            try:
                job = decode(Job, text, JOB_BYTES_MAX)
            except BadMessage as error:  # written by another version: its lease expires
                log.warning("cannot report an interrupted run: %s", error)
                continue
            self._finish(job, failed_result(self.settings.host, job, Interrupted(), Stage.UNKNOWN))
        self._outbox.start()
        self._registry.start()
        self.heartbeat.start()
        log.info("agent started host=%s", self.settings.host)

    def stop(self) -> None:
        """Accept nothing new, cancel what runs, restore phones, send what can be sent, and end."""
        log.info("agent is stopping host=%s", self.settings.host)
        self._stopping = True
        self.heartbeat.withdraw_phones()
        for slot in self._registry.slots():
            slot.cancel.set()
        for slot in self._registry.slots():
            slot.lane.acquire(timeout=self._timeouts.lane_shutdown_timeout_s)
        self._outbox.wait_until_empty(self._timeouts.outbox_drain_timeout_s)
        self.heartbeat.stop()
        self._outbox.stop()
        self._registry.stop()
        self._spool.close()
        self._server.stop()

    def run(self, job: Job) -> None:
        """Run one attempt and make sure that its report arrives; drop a job that arrives twice."""
        if not self._spool.record_start(job.run, job.model_dump_json()):
            log.info("dropped a job that was started before run=%s phone=%s", job.run, job.phone)
            return
        with log_values(sweep=job.sweep, run=job.run, phone=job.phone, host=self.settings.host):
            self._run_logged(job)

    def _run_logged(self, job: Job) -> None:
        host = self.settings.host
        log.info("attempt started run=%s phone=%s host=%s", job.run, job.phone, host)
        started = time.monotonic()
        slot = self._registry.slot(job.phone)
        try:
            if slot is None or not slot.here:
                raise PhoneAway(f"{job.phone} is not connected to {host} now")
            with self._lane_of(slot, job):
                result = self._attempt(slot, job)
                self._finish(job, result)
        except FarmError as error:
            result = failed_result(host, job, error, Stage.START)
            self._finish(job, result)
        text = "attempt ended run=%s phone=%s host=%s outcome=%s seconds=%.1f"
        seconds = time.monotonic() - started
        log.info(text, job.run, job.phone, host, outcome_of(result.report), seconds)
        self._metrics.add("farm_attempts_total", label=outcome_of(result.report))

    def command(self, command: Command) -> None:
        """Execute a command; executing it twice has the same effect as once."""
        if command.kind is CommandKind.RESEND_FACTS:
            for slot in self._registry.slots():
                self._announce(slot)
            log.info("command done command=%s", command.kind)
        elif command.kind is CommandKind.CANCEL:
            if command.run is not None:
                self._cancel(command.run)
        elif command.address is not None and command.id:
            self._send_result(command, *self._connect_phone(command, command.address))
        elif command.phone is not None and command.id:
            try:
                self._send_result(command, command.phone, *self._result_on_phone(command))
            except PhoneAway as error:
                text = str(error)
                self._send_result(command, command.phone, False, text, was_executed=False)

    def _cancel(self, run: RunId) -> None:
        """Stop a run; a run that has not begun will not begin."""
        if run not in self._cancelled:  # cancels are repeated until the run has ended
            log.info("cancel requested run=%s", run)
        # Added before the slots are read: _lane_of() sets slot.job and then reads _cancelled, so
        # one of the two sees the other.
        self._cancelled = [*self._cancelled[-CANCELLED_MAX:], run]
        for slot in self._registry.slots():
            if slot.job is not None and slot.job.run == run:
                slot.cancel.set()

    def _connect_phone(self, command: Command, address: str) -> tuple[str, bool, str]:
        """Connect, disconnect or pair a phone; return its serial, success and a sentence."""
        try:
            if command.kind is CommandKind.DISCONNECT:
                self._registry.remove_address(address)
                return NO_PHONE, True, f"{address} is disconnected"
            paired = command.kind is CommandKind.PAIR
            if paired:
                deadline = Deadline.after(self._timeouts.pairing_timeout_s)
                address = self._server.pair(address, command.code, deadline)
            serial = self._registry.add_address(address)
        except FarmError as error:
            return NO_PHONE, False, str(error)
        if serial is not None:
            return serial, True, f"{serial} is connected at {address}"
        problem = self._registry.problem_at(address)
        reason = problem.advice if problem else "it did not answer in time; try again"
        if paired and problem and problem.problem is PhoneProblem.UNREACHABLE:
            reason = "it is paired, but adb does not find it; connect it with 'farm phone connect'"
        return NO_PHONE, False, f"{address}: {reason}"

    def _send_result(
        self,
        command: Command,
        serial: str,
        succeeded: bool,
        text: str,
        file: str | None = None,
        was_executed: bool = True,
    ) -> None:
        outcome = "ok" if succeeded else "failed"
        log.info("command done command=%s phone=%s outcome=%s", command.kind, serial, outcome)
        blob = (file or "").encode()
        digest = digest_of_bytes(blob)
        result = CommandResult(
            host=self.settings.host,
            phone=serial,
            id=command.id,
            command=command.kind,
            finished_at=datetime.now(UTC),
            succeeded=succeeded,
            was_executed=was_executed,
            text=text,
            file=digest if file else None,
        )
        parcels: list[AnyParcel] = [*(split_into_chunks(digest, blob) if file else []), result]
        self._spool.add_parcels(parcels)
        self._outbox.post(parcels)

    def _result_on_phone(self, command: Command) -> tuple[bool, str, str | None]:
        """Restore, test, tune or commission a phone; raise PhoneAway if it is away or busy."""
        serial = command.phone or NO_PHONE
        slot = self._registry.slot(serial)
        if slot is None or not slot.here:
            raise PhoneAway(f"{serial} is not connected to {self.settings.host} now")
        if not slot.lane.acquire(timeout=self._timeouts.lane_free_timeout_s):
            raise PhoneAway(f"{serial} is busy; repeat it when the phone is idle")
        state_dir = self.settings.state_dir
        try:
            with lane_lock(state_dir, serial):
                if command.kind is CommandKind.RESTORE:
                    return *restore_on_request(slot.phone, state_dir), None
                if command.kind is CommandKind.TUNE:
                    return tune_phone(slot.phone, state_dir, runner_for, command.sizes)
                if command.kind is CommandKind.COMMISSION:
                    return *self._commission(slot, command.quick), None
                result = run_selftest(slot.phone, state_dir, runner_for)
                slot.clear_losses()
                return *result, None
        except LeaseLost as error:  # another process of this host has it
            raise PhoneAway(str(error)) from None
        except FarmError as error:
            return False, str(error), None
        finally:
            slot.lane.release()

    def _commission(self, slot: PhoneSlot, quick: bool) -> tuple[bool, str]:
        """Commission a phone, which shows as busy and gets no runs."""
        slot.cancel.clear()
        if self._stopping:  # stop() sets it before it cancels
            raise Interrupted("the agent is stopping")
        slot.is_commissioned_now = True
        self.heartbeat.send_now()
        try:
            return commission_phone(slot.phone, self._lane_context(slot), quick)
        finally:
            slot.is_commissioned_now = False
            if slot.update_facts(slot.phone.facts):
                self._announce(slot)
            self.heartbeat.send_now()

    def _lane_context(self, slot: PhoneSlot) -> LaneContext:
        return LaneContext(
            host=self.settings.host,
            state_dir=self.settings.state_dir,
            runner_for=runner_for,
            cancel=slot.cancel,
            status=slot.status,
            files=self.settings.files,
            timeouts=self._timeouts,
        )

    def _attempt(self, slot: PhoneSlot, job: Job) -> LaneResult:
        if self.settings.commission and is_commissioning_due(slot.phone.facts):
            succeeded, text = commission_phone(slot.phone, self._lane_context(slot), quick=True)
            log.log(logging.INFO if succeeded else logging.WARNING, "%s", text)
        result = run_attempt(job, slot.phone, self._lane_context(slot))
        if slot.update_facts(slot.phone.facts):  # a first run calibrates the fuel gauge
            self._announce(slot)
        return result

    @contextmanager
    def _lane_of(self, slot: PhoneSlot, job: Job) -> Iterator[None]:
        """Hold the phone's lane: in this process, and against any other process of this host."""
        if not slot.lane.acquire(timeout=job.lease_timeout_s):
            raise LeaseLost(f"the lane of {job.phone} was not free within the lease")
        try:
            with lane_lock(self.settings.state_dir, job.phone):
                slot.cancel.clear()
                if self._stopping:  # stop() sets it before it cancels
                    raise Interrupted("the agent is stopping")
                slot.job = job
                if job.run in self._cancelled:
                    raise Cancelled
                self.heartbeat.send_now()
                yield
        finally:
            slot.job = None
            self.heartbeat.send_now()
            slot.lane.release()

    def _finish(self, job: Job, result: LaneResult) -> None:
        """Store the report and its telemetry, then send them: in this order."""
        parcels: list[Report | Chunk] = []
        if result.telemetry is not None and result.report.telemetry is not None:
            parcels += split_into_chunks(result.report.telemetry, result.telemetry)
        parcels.append(result.report)
        self._spool.record_end(job.run, parcels)
        self._outbox.post(parcels)

    def _announce(self, slot: PhoneSlot) -> None:
        try:
            announcement = PhoneAnnouncement(
                host=self.settings.host, facts=slot.facts, facts_digest=slot.facts_digest
            )
        except ValidationError as error:  # a phone may print anything
            reason = error.errors(include_input=False)[0]["msg"]
            log.warning(
                "the facts of a phone cannot be announced: %s phone=%s", reason, slot.facts.serial
            )
            return
        self._spool.add_parcels([announcement])
        self._outbox.post([announcement])
        self.heartbeat.send_now()


def outcome_of(report: Report) -> str:
    """The validity of a run, or the kind of its fault."""
    if report.fault is not None:
        return report.fault.kind.value
    return report.verdict.validity.value if report.verdict is not None else "none"


def failed_result(host: str, job: Job, error: FarmError, stage: Stage) -> LaneResult:
    """A result that contains only the fault."""
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
    return LaneResult(report)


@contextmanager
def lane_lock(state_dir: Path, serial: str) -> Iterator[None]:
    """Lock a phone against other processes; a frozen agent keeps its lock and is not overtaken."""
    folder = state_dir / "lanes"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / serial.replace(":", "_")).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LeaseLost(f"another process of this host holds {serial}") from None
        yield
