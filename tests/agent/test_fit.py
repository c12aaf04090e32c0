"""Memory: what fits, what is refused before it is tried, and what becomes of what is tried."""

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.phone import Phone
from agent.run.fit import planned_mb, was_starved
from tests.agent.jobs import a_job
from workloads.catalogue import bind, lower
from workloads.fault import Blame, Fault
from workloads.fit import Fit, fit_of
from workloads.measure import Metric, Provenance, Source
from workloads.messages import Report

TRY = {"too_large": "try"}


def fit(report: Report) -> Fit | None:
    return fit_of(report.fault, {metric.name: metric for metric in report.metrics})


@pytest.mark.parametrize(
    ("workload", "batch", "condition", "expected"),
    [
        ("lenet", 16, {}, Fit.FITS),
        ("vgg16", 32, {}, Fit.TOO_LARGE),
        ("vgg16", 32, TRY, Fit.SWAPS),
        ("vgg16", 64, TRY, Fit.NEVER_STARTS),
        ("emdl-mobilenetv2", 40, {}, Fit.KILLED),  # the study's engine takes more than ours would
    ],
)
def test_every_outcome_of_memory_is_told(
    phone: Phone, desk: Desk, workload: str, batch: int, condition: dict[str, str], expected: Fit
) -> None:
    """On a phone of six gigabytes, three of them free."""
    job = a_job(phone.known.serial, 1, workload, {"batch_size": batch}, **condition)
    report = attempt(job, phone, desk).report
    assert (fit(report), report.fault) == (expected, report.fault)


def test_a_refusal_says_what_is_missing_and_what_to_do(phone: Phone, desk: Desk) -> None:
    """It was predicted, not tried: nothing ran, and nobody is asked to try again."""
    fault = attempt(a_job(phone.known.serial, 1, "bert"), phone, desk).report.fault
    assert fault is not None
    assert (fault.blame, fault.stage) == (Blame.REQUEST, "prepare")
    assert "can be counted on: predicted not to fit, and not tried" in fault.text


def test_a_plan_tells_what_it_takes() -> None:
    """Parameters and gradients of mlp-4 are 0.9 MB each; the rest of it is small."""
    assert planned_mb(lower(bind("mlp-4", {}), 4)) == pytest.approx(2.3, abs=0.5)
    assert planned_mb(b"farmhand-plan 1 3\n{}\n") is None
    assert planned_mb(b"junk") is None


@pytest.mark.parametrize(
    ("left_kb", "starved"), [((900, 400), True), ((400, 900), False), ((), False)]
)
def test_the_last_reading_decides_whether_it_starved(
    left_kb: tuple[int, ...], starved: bool
) -> None:
    """A tenth of all memory is what phones keep for themselves."""
    rows = [f'"MemTotal:  5000 kB;MemFree: 1 kB;MemAvailable:  {kb} kB;Cached' for kb in left_kb]
    assert was_starved("\n".join(rows)) is starved


def test_what_failed_for_another_reason_says_nothing_of_memory() -> None:
    """And a little swap may be anybody's."""
    fault = Fault(blame=Blame.PHONE, kind="Hung", stage="run", text="")
    assert fit_of(fault, {}) is None
    host = Provenance(source=Source.HOST)
    swapped = {
        mb: Metric(name="swapped_mb", value=mb, unit="MB", provenance=host) for mb in (3.0, 30.0)
    }
    assert fit_of(None, {"swapped_mb": swapped[3.0]}) is Fit.FITS
    assert fit_of(None, {"swapped_mb": swapped[30.0]}) is Fit.SWAPS
