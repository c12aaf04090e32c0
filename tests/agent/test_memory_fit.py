"""Memory: which plans fit, which are refused, and the outcome of those that are tried."""

import pytest

from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.launch.memory_fit import planned_mb, was_out_of_memory
from agent.phone.phone_driver import Phone
from tests.agent.jobs import a_job
from workloads.catalogue import bind, lower
from workloads.protocol.faults import Blame, Fault, FaultKind
from workloads.protocol.memory_outcome import MemoryOutcome, memory_outcome
from workloads.protocol.messages import Report
from workloads.protocol.metrics import Metric, Provenance, Source
from workloads.protocol.stage import Stage

TRY = {"too_large": "try"}


def outcome(report: Report) -> MemoryOutcome | None:
    return memory_outcome(report.fault, {metric.name: metric for metric in report.metrics})


@pytest.mark.parametrize(
    ("workload", "batch", "condition", "expected"),
    [
        ("lenet", 16, {}, MemoryOutcome.FITS),
        ("vgg16", 32, {}, MemoryOutcome.TOO_LARGE),
        ("vgg16", 32, TRY, MemoryOutcome.SWAPS),
        pytest.param("vgg16", 64, TRY, MemoryOutcome.NEVER_STARTS, marks=pytest.mark.slow),
        # The study's engine needs more than ours.
        pytest.param("emdl-mobilenetv2", 40, {}, MemoryOutcome.KILLED, marks=pytest.mark.slow),
    ],
)
def test_every_memory_outcome_is_reported(
    phone: Phone,
    context: LaneContext,
    workload: str,
    batch: int,
    condition: dict[str, str],
    expected: MemoryOutcome,
) -> None:
    """On a phone with 6 GB, of which 3 GB are free."""
    job = a_job(phone.facts.serial, 1, workload, {"batch_size": batch}, **condition)
    report = run_attempt(job, phone, context).report
    assert (outcome(report), report.fault) == (expected, report.fault)


def test_a_refusal_names_the_missing_memory_and_the_remedy(
    phone: Phone, context: LaneContext
) -> None:
    fault = run_attempt(a_job(phone.facts.serial, 1, "bert"), phone, context).report.fault
    assert fault is not None
    assert (fault.blame, fault.kind, fault.stage) == (
        Blame.REQUEST,
        FaultKind.TOO_LARGE,
        Stage.PREPARE,
    )
    assert "too_large: try" in fault.text


def test_a_plan_states_its_memory() -> None:
    assert planned_mb(lower(bind("mlp-4", {}), 4)) == pytest.approx(2.3, abs=0.5)
    assert planned_mb(b"farmhand-plan 1 3\n{}\n") is None
    assert planned_mb(b"junk") is None


@pytest.mark.parametrize(
    ("left_kb", "exhausted"), [((900, 400), True), ((400, 900), False), ((), False)]
)
def test_the_last_reading_decides_whether_memory_was_exhausted(
    left_kb: tuple[int, ...], exhausted: bool
) -> None:
    """Phones keep about a tenth of their memory free."""
    rows = [f'"4 f0 f0","5000 {kb} 900 100",null' for kb in left_kb]
    assert was_out_of_memory("\n".join(rows)) is exhausted


def test_another_failure_is_not_a_memory_outcome() -> None:
    fault = Fault(blame=Blame.PHONE, kind=FaultKind.HUNG, stage=Stage.RUN, text="")
    assert memory_outcome(fault, {}) is None
    host = Provenance(source=Source.HOST)
    swapped = {
        mb: Metric(name="swapped_mb", value=mb, unit="MB", provenance=host) for mb in (3.0, 30.0)
    }
    assert memory_outcome(None, {"swapped_mb": swapped[3.0]}) is MemoryOutcome.FITS
    assert memory_outcome(None, {"swapped_mb": swapped[30.0]}) is MemoryOutcome.SWAPS
