"""Builders of valid values; keyword arguments replace single fields."""

from datetime import UTC, datetime
from typing import Any

from orchestrator.planning.trials import PlannedRun, Trial
from workloads.catalogue import bind
from workloads.protocol.base import digest_of
from workloads.protocol.condition import Condition
from workloads.protocol.faults import FarmError
from workloads.protocol.messages import Job, PhoneAnnouncement, Report, RunId
from workloads.protocol.metrics import Metric, Provenance, Provenances, SimulationModel, Source
from workloads.protocol.phone_facts import Cluster, ControlLevel, PhoneFacts, ThermalZone
from workloads.protocol.stage import Stage
from workloads.protocol.verdict import Reason, ReasonCode, Validity, Verdict

SIMULATED = Provenance(source=Source.SIMULATED, model=SimulationModel.EXTRAPOLATED)


def a_phone(serial: str = "PH1", **changes: Any) -> PhoneFacts:
    """Build the facts of a rooted phone with 4+3+1 cores."""
    facts: dict[str, Any] = {
        "serial": serial,
        "model": f"Model {serial}",
        "soc": "SM8150",
        "abi": "arm64-v8a",
        "android": "10",
        "ram_mb": 5600,
        "clusters": (
            Cluster(
                policy=0, cpus=(0, 1, 2, 3), capacity=488, ladder_khz=(300000, 998400, 1785600)
            ),
            Cluster(policy=4, cpus=(4, 5, 6), capacity=871, ladder_khz=(710400, 1612800, 2419200)),
            Cluster(policy=7, cpus=(7,), capacity=1024, ladder_khz=(825600, 1804800, 2841600)),
        ),
        "cpu_zones": (ThermalZone(path="/sys/z/temp", type="cpu-0", scale=0.001),),
        "rooted": True,
        "clocks_writable": True,
        "control": ControlLevel.CONTROLLED,
        "runner": "ab" * 32,
        "provenance": Provenances(
            time=SIMULATED, clock=SIMULATED, heat=SIMULATED, energy=SIMULATED
        ),
    }
    return PhoneFacts(**(facts | changes))


def an_announcement(facts: PhoneFacts, host: str = "host-a") -> PhoneAnnouncement:
    """Build the announcement of a phone by a host."""
    return PhoneAnnouncement(
        host=host, facts=facts, facts_digest=digest_of(facts.model_dump(mode="json"))
    )


def a_trial(number: int = 0, phone: str = "PH1") -> Trial:
    """Build the n-th trial of a phone."""
    trial = f"tr-{digest_of([number, phone])[:16]}"
    return Trial(id=trial, case=bind("noop", {}), condition=Condition(), phone=phone)


def planned_runs(trials: list[Trial], repeat: int = 1) -> list[PlannedRun]:
    """Build the runs of trials, block after block."""
    return [
        PlannedRun(trial=trial.id, repeat=block, block=block, position=block * len(trials) + index)
        for block in range(repeat)
        for index, trial in enumerate(trials)
    ]


def a_report(job: Job, host: str = "host-a", **changes: Any) -> Report:
    """Build a valid report on a job."""
    now = datetime.now(UTC)
    content: dict[str, Any] = {
        "run": job.run,
        "host": host,
        "phone": job.phone,
        "case_digest": job.case.digest,
        "condition_digest": job.condition.digest,
        "started_at": now,
        "ended_at": now,
        "control": ControlLevel.CONTROLLED,
        "metrics": (Metric(name="step_ms", value=12.5, unit="ms", provenance=SIMULATED),),
        "verdict": Verdict(validity=Validity.VALID),
    }
    return Report(**(content | changes))


def a_void_report(job: Job) -> Report:
    """Build a report with a void verdict."""
    reason = Reason.void(ReasonCode.CLOCKS_NOT_PINNED, share=0.5)
    return a_report(job, verdict=Verdict(validity=Validity.VOID, reasons=(reason,)))


def a_faulty_report(job: Job, error: FarmError) -> Report:
    """Build a report of a failed run."""
    return a_report(job, metrics=(), verdict=None, fault=error.fault(Stage.RUN))


def a_run(number: int = 0, attempt: int = 1) -> RunId:
    """Build the identity of an attempt."""
    return RunId(trial=a_trial(number).id, repeat=0, attempt=attempt)
