"""Long runs: when they became steady, when they began to throttle, and their step times."""

import math

import pytest

from agent.collect.readings import Readings
from agent.collect.runner_output import StepWindow
from agent.judge.steady_state import steady_from_ns, step_time_curve, throttled_after_s
from agent.lane import run_attempt
from agent.lane_context import LaneContext
from agent.phone.adb import AdbServer
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from workloads.cli_options import EVENT_TIME
from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.verdict import Validity

S = 10**9
ZONE = ThermalZone(path="skin", type="skin", scale=0.001)


def a_run(seconds: int, tau_s: float, throttles_s: float) -> Readings:
    """Build one reading per second of a phone that warms, and lowers its clock once."""
    times = range(seconds)
    return Readings(
        paths=("skin", "clock"),
        t_ns=[t * S for t in times],
        columns={
            "skin": [round(1000 * (45 - 15 * math.exp(-t / tau_s))) for t in times],
            "clock": [2_400_000 if t < throttles_s else 1_800_000 for t in times],
        },
    )


@pytest.mark.parametrize("tau_s", [200.0, 400.0])
def test_a_run_is_steady_when_its_temperature_is(tau_s: float) -> None:
    steady_ns = steady_from_ns(a_run(2400, tau_s, 0), [ZONE], ["clock"], (0, 2400 * S))
    assert steady_ns is not None
    flat_s = tau_s * math.log(60 * 15 / tau_s / 0.15)
    assert flat_s - 100 <= steady_ns / S <= flat_s + 60


def test_a_clock_that_falls_late_becomes_steady_late() -> None:
    steady_ns = steady_from_ns(a_run(2400, 200.0, 1900), [ZONE], ["clock"], (0, 2400 * S))
    assert steady_ns is not None
    assert steady_ns / S >= 1800


def test_a_run_that_ends_too_early_is_never_steady() -> None:
    assert steady_from_ns(a_run(400, 400.0, 0), [ZONE], ["clock"], (0, 400 * S)) is None
    assert steady_from_ns(Readings(), [ZONE], ["clock"], (0, 400 * S)) is None


def test_the_first_lasting_fall_of_the_clock_is_the_throttle() -> None:
    readings = a_run(600, 200.0, 240)
    readings.columns["clock"][100] = 300_000  # a glitch
    assert throttled_after_s(readings, ["clock"], (0, 600 * S)) == 240
    assert throttled_after_s(a_run(600, 200.0, 999), ["clock"], (0, 600 * S)) is None


def test_a_curve_has_at_most_a_few_dozen_points() -> None:
    windows = [
        StepWindow(first=step, n=1, t_ns=step * S, ns=S, ns_min=S, ns_max=S) for step in range(600)
    ]
    curve = step_time_curve(windows)
    assert len(curve) == 60
    assert curve[0] == (5.0, 1000.0)


def test_a_soaked_run_measures_only_the_steady_part(
    adb: AdbServer, start_phone: StartPhone, context: LaneContext
) -> None:
    phone = open_phone(adb, start_phone("meizu-16t", speed=EVENT_TIME).address)
    job = a_job(phone.facts.serial, workload="sgemm", cores="all8", protocol="soaked")
    report = run_attempt(job, phone, context).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.validity is Validity.VALID, report.verdict.reasons
    metrics = {metric.name: metric.value for metric in report.metrics}
    assert 100 < metrics["time_to_steady_s"] < 2400
    assert 0 < metrics["time_to_throttle_s"] < 2400
    assert len(report.step_time_curve) == 60
    assert metrics["step_ms"] == pytest.approx(report.step_time_curve[-1][1], rel=0.05)
    assert metrics["step_ms"] > 1.05 * report.step_time_curve[0][1]
