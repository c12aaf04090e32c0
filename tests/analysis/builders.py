"""Builders of phones and measured runs for the tests of planning, analysis and export."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.analysis.measurements import NOTHING_APPLIED, MeasuredRun
from workloads.catalogue import bind
from workloads.protocol.base import digest_of
from workloads.protocol.condition import Condition
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.metrics import METRICS, Metric, Provenance, SimulationModel, Source
from workloads.protocol.phone_facts import Cluster, ControlLevel, PhoneFacts, ThermalZone
from workloads.protocol.same_clocks import cell_on_phone
from workloads.protocol.verdict import Reason, Validity, Verdict

MEASURED = Provenance(source=Source.PHONE)
HOST = Provenance(source=Source.HOST)
FITTED = Provenance(source=Source.SIMULATED, model=SimulationModel.FITTED, error_rel=0.10)
EXTRAPOLATED = Provenance(source=Source.SIMULATED, model=SimulationModel.EXTRAPOLATED)

LITTLE = Cluster(policy=0, cpus=(0, 1, 2, 3), capacity=300, ladder_khz=(300000, 900000, 1800000))
GOLD = Cluster(policy=4, cpus=(4, 5, 6), capacity=800, ladder_khz=(700000, 1500000, 2400000))
PRIME = Cluster(policy=7, cpus=(7,), capacity=1024, ladder_khz=(800000, 1700000, 2840000))


def phone(serial: str = "px6-01", **changes: Any) -> PhoneFacts:
    """Build the facts of a controlled phone with 4+3+1 cores."""
    fields: dict[str, Any] = {
        "serial": serial,
        "model": f"Model {serial}",
        "soc": "sm8350",
        "abi": "arm64-v8a",
        "android": "14",
        "ram_mb": 8192,
        "clusters": (LITTLE, GOLD, PRIME),
        "cpu_zones": (ThermalZone(path="/z0", type="cpu-0", scale=0.001),),
        "rooted": True,
        "clocks_writable": True,
        "control": ControlLevel.CONTROLLED,
        "runner": "0" * 64,
    }
    return PhoneFacts(**(fields | changes))


def measured(
    serial: str = "px6-01",
    step_ms: float | None = 10.0,
    *,
    workload: str = "mlp-4",
    parameters: dict[str, int] | None = None,
    provenance: Provenance = MEASURED,
    control: ControlLevel | None = ControlLevel.CONTROLLED,
    validity: Validity = Validity.VALID,
    reasons: tuple[Reason, ...] = (),
    condition: dict[str, Any] | None = None,
    facts: PhoneFacts | None = None,
    repeat: int = 0,
    grade: str = "",
    **metrics: float,
) -> MeasuredRun:
    """Build one run with metrics of one provenance; runs of one trial have the same trial id."""
    figures = {"step_ms": step_ms} if step_ms is not None else {}
    started = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    case, bound_condition = bind(workload, parameters or {}), Condition(**(condition or {}))
    facts = facts or phone(serial, control=control or ControlLevel.OBSERVED)
    clocked = cell_on_phone(facts, case.digest, bound_condition)
    return MeasuredRun(
        sweep="sw-00000001",
        trial=f"tr-{digest_of([case.digest, bound_condition.digest, serial])[:16]}",
        repeat=repeat,
        attempt=1,
        block=repeat,
        position=repeat,
        phone=serial,
        host="bench-1",
        facts=facts,
        case=case,
        condition=bound_condition,
        control=control,
        verdict=Verdict(validity=validity, reasons=reasons),
        metrics={
            name: Metric(
                name=name,
                value=value,
                unit=METRICS[name].unit,
                provenance=provenance,
                grade=grade,
            )
            for name, value in {**figures, **metrics}.items()
        },
        started_at=started,
        ended_at=started + timedelta(seconds=9),
        applied=AppliedCondition(clocks_khz=clocked.clocks_khz, gpu_khz=clocked.gpu_khz)
        if clocked
        else NOTHING_APPLIED,
    )


def a_trial_of(
    step_ms: float | None,
    runs: int,
    *,
    seed: int = 0,
    scatter: float = 0.005,
    first: int = 0,
    **changes: Any,
) -> list[MeasuredRun]:
    """Build several runs of one trial, with a small scatter."""
    rng = random.Random(seed)
    return [
        measured(
            step_ms=None if step_ms is None else step_ms * (1 + rng.gauss(0, scatter)),
            repeat=first + index,
            **changes,
        )
        for index in range(runs)
    ]


def endurance(serial: str, last_minute_ms: float, **changes: Any) -> MeasuredRun:
    """Build a run of ten minutes, with the step time of its last minute."""
    condition = {"protocol": "endurance"} | changes.pop("condition", {})
    return measured(
        serial, None, condition=condition, last_minute_step_ms=last_minute_ms, **changes
    )
