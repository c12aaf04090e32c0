"""Long runs: when they became steady, when they began to throttle, and their curve."""

import math

import pytest

from agent.desk import Desk
from agent.lane import attempt
from agent.phone.adb import AdbServer
from agent.run.lines import Window
from agent.run.settling import curve_of, settled_ns, throttled_after_s
from agent.run.telemetry import Readings
from tests.agent.conftest import StartPhone
from tests.agent.jobs import a_job
from tests.agent.virtual_phones import open_phone
from workloads.measure import Standing
from workloads.phone import ThermalZone

S = 10**9
ZONE = ThermalZone(path="skin", type="skin", scale=0.001)


def a_run(seconds: int, tau_s: float, throttles_s: float) -> Readings:
    """One reading a second of a phone that warms, and drops its clock once."""
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
def test_a_run_is_steady_when_its_heat_is(tau_s: float) -> None:
    found = settled_ns(a_run(2400, tau_s, 0), [ZONE], ["clock"], (0, 2400 * S))
    assert found is not None
    flat_s = tau_s * math.log(60 * 15 / tau_s / 0.15)
    assert flat_s - 100 <= found / S <= flat_s + 60


def test_a_clock_that_falls_late_settles_late() -> None:
    found = settled_ns(a_run(2400, 200.0, 1900), [ZONE], ["clock"], (0, 2400 * S))
    assert found is not None
    assert found / S >= 1800


def test_what_ends_before_it_is_steady_never_was() -> None:
    assert settled_ns(a_run(400, 400.0, 0), [ZONE], ["clock"], (0, 400 * S)) is None
    assert settled_ns(Readings(), [ZONE], ["clock"], (0, 400 * S)) is None


def test_the_first_lasting_fall_of_the_clock_is_the_throttle() -> None:
    readings = a_run(600, 200.0, 240)
    readings.columns["clock"][100] = 300_000  # a glitch
    assert throttled_after_s(readings, ["clock"], (0, 600 * S)) == 240
    assert throttled_after_s(a_run(600, 200.0, 999), ["clock"], (0, 600 * S)) is None


def test_a_curve_has_some_dozens_of_points() -> None:
    windows = [Window(first=at, n=1, t_ns=at * S, ns=S, ns_min=S, ns_max=S) for at in range(600)]
    curve = curve_of(windows)
    assert len(curve) == 60
    assert curve[0] == (5.0, 1000.0)


def test_a_soaked_run_measures_only_what_is_steady(
    adb: AdbServer, start_phone: StartPhone, desk: Desk
) -> None:
    """Slower than the cold run of the same work on the same phone, and it says when it settled."""
    phone = open_phone(adb, start_phone("meizu-16t", speed=800).address)
    job = a_job(phone.known.serial, workload="sgemm", cores="all8", protocol="soaked")
    report = attempt(job, phone, desk).report
    assert report.fault is None, report.fault
    assert report.verdict is not None
    assert report.verdict.standing is Standing.VALID, report.verdict.reasons
    found = {metric.name: metric.value for metric in report.metrics}
    assert 100 < found["soak_s"] < 2400
    assert 0 < found["time_to_throttle_s"] < 2400
    assert len(report.curve) == 60
    assert found["step_ms"] == pytest.approx(report.curve[-1][1], rel=0.05)
    assert found["step_ms"] > 1.05 * report.curve[0][1]
