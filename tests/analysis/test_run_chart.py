"""The chart of a run: equal parts of its time, and the moments that its verdict names."""

import math

from orchestrator.analysis.run_chart import build_run_chart
from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.telemetry import (
    CumulativeSeries,
    SensorReadings,
    StepWindows,
    Telemetry,
    sampled,
)
from workloads.protocol.verdict import Reason, ReasonCode

SECOND = 1_000_000_000
ZONES = tuple(ThermalZone(path=f"/z{n}", type=f"cpu-{n}", scale=0.001) for n in (0, 1))


def a_run(step_ms: list[float], **changes: object) -> Telemetry:
    """Build the telemetry of a run with one window per second."""
    n = len(step_ms)
    times = [index * SECOND for index in range(n)]
    content: dict[str, object] = {
        "windows": StepWindows(
            range(n), [1] * n, times, [int(ms * 1e6) for ms in step_ms], [1] * n, [2] * n
        ),
        "readings": SensorReadings(times, {"/z0": [30_000] * n, "/z1": [30_000, "?"] * (n // 2)}),
        "series": {
            "clock_khz_s.0": sampled([(0, 1e6), (n * SECOND, 1e6)]),
            "clock_khz_s.4": sampled([(0, 2e6), (n * SECOND, 1e6)]),
            "busy_s": CumulativeSeries([0, n * SECOND], [0.0, 3.6 * n]),
        },
        "cores": 4,
    }
    return Telemetry(**(content | changes))  # type: ignore[arg-type]


def test_the_quantities_of_a_run_share_their_time_axis() -> None:
    capped = Reason.suspect(ReasonCode.SAMPLING_GAP, gap_s=3.0, at_s=5.5)
    warm = Reason.suspect(ReasonCode.BODY_WARMED, rise_c=4.0)
    chart = build_run_chart(a_run([10.0] * 5 + [20.0] * 5), ZONES, (warm, capped), columns=10)
    assert chart is not None
    rows = {row.name: row for row in chart.rows}
    assert list(rows) == ["step", "clock", "heat", "load"]
    assert rows["step"].values[0] == 10.0
    assert rows["step"].values[-1] == 20.0
    assert {round(value or 0) for value in rows["clock"].values} == {1500}, "the fast cores"
    assert set(rows["heat"].values) == {30.0}
    assert {round(value or 0) for value in rows["load"].values} == {90}
    assert chart.moments == ((5.5, 2),), "the second reason has a moment"
    assert chart.column_of(5.5) == 6
    assert (chart.column_of(-1.0), chart.column_of(1e9)) == (0, 9)


def test_what_was_not_recorded_is_left_out() -> None:
    assert build_run_chart(Telemetry(), ZONES) is None
    chart = build_run_chart(a_run([10.0, 11.0], series={}, readings=SensorReadings()), ZONES)
    assert chart is not None
    assert [row.name for row in chart.rows] == ["step"]


def test_hostile_values_are_left_out() -> None:
    series = {"busy_s": CumulativeSeries([0, SECOND], [0.0, math.nan])}
    readings = SensorReadings([0, SECOND], {"/z0": [math.inf, "x"], "/z1": []})
    reason = Reason.suspect(ReasonCode.SAMPLING_GAP, gap_s=1.0, at_s="soon")
    chart = build_run_chart(
        a_run([10.0, 11.0], series=series, readings=readings, cores=0), ZONES, (reason,)
    )
    assert chart is not None
    assert ([row.name for row in chart.rows], chart.moments) == (["step"], ())
    backwards = StepWindows([0, 1], [1, 1], [5, 2], [1, 1], [1, 1], [1, 1])
    assert build_run_chart(a_run([1.0, 1.0], windows=backwards), ZONES) is not None
