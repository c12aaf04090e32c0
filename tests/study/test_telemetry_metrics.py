"""Metrics that only telemetry contains, from small blobs whose results can be computed by hand."""

from typing import Any

import pytest

from orchestrator.study.telemetry_metrics import TRACE_NS, telemetry_metrics
from tests.analysis.builders import measured, phone
from workloads.protocol.phone_facts import ThermalZone
from workloads.protocol.telemetry import pack_telemetry, read_telemetry

SECOND = 1_000_000_000
SKIN = ThermalZone(path="/skin", type="skin", scale=0.001)


def metrics_in(blob: dict[str, Any], **metrics: float) -> dict[tuple[str, str], float]:
    """Return the metrics of a blob, by name and kind of operation."""
    run = measured("a", facts=phone("a", body_zone=SKIN), **metrics)
    return {
        (name, str(at.get("op_kind", ""))): value
        for at, name, value, _ in telemetry_metrics(run, read_telemetry(pack_telemetry(blob)))
    }


def windows(ns: list[int], n: list[int]) -> dict[str, Any]:
    """Build windows with these durations and numbers of steps."""
    rest = {name: [0] * len(n) for name in ("first", "t_ns", "ns_min", "ns_max")}
    return {"windows": {"ns": ns, "n": n, **rest}}


def test_operations_have_shares_of_time_and_energy_by_kind() -> None:
    times = [index * SECOND // 10 for index in range(101)]  # 1 W for 6 s, then 3 W for 4 s
    total = [min(t, 6 * SECOND) / SECOND + max(t - 6 * SECOND, 0) * 3 / SECOND for t in times]
    blob = {
        "ops": {"name": ["a", "b", "c"], "kind": ["conv", "copy", "conv"]},
        "traces": [[0, 0, 0, [4 * SECOND, 6 * SECOND, 10 * SECOND]]],
        **windows(ns=[10 * SECOND], n=[1]),
        "series": {"energy_j": {"t_ns": times, "total": total}},
        "cores": 1,
    }
    metrics = metrics_in(blob, energy_per_step_mj=18_000.0)
    assert (metrics["op_share", "conv"], metrics["op_share", "copy"]) == (0.8, 0.2)
    assert metrics["op_energy_share", "conv"] == pytest.approx(16 / 18)
    assert ("op_energy_share", "conv") not in metrics_in(blob), "there is no energy meter"


def test_the_first_step_is_compared_with_the_median_one() -> None:
    assert metrics_in(windows(ns=[30, 10, 20, 10], n=[1, 1, 2, 1]))["first_step_ratio", ""] == 3.0
    assert not metrics_in(windows(ns=[30], n=[1])), "one step has no median to compare with"


def test_the_settled_clock_ignores_the_start() -> None:
    times_s = [0, 2, 12, 240, 300]
    total = [0.0, 2.0, 22.0, 300.0, 360.0]  # idle, then 2 per second, finally 1 per second
    clock_series = {"t_ns": [t * SECOND for t in times_s], "total": total}
    blob = {"series": {"clock_khz_s.4": clock_series}}
    assert metrics_in(blob, pinned_clock_share=1.0)["settled_clock_share", ""] == 0.5
    assert not metrics_in(blob), "clocks that were not pinned have no such metric"


def test_the_body_temperature_is_read_at_the_end_of_the_study_s_trace() -> None:
    times_s = [
        *range(10),
        *(TRACE_NS // SECOND + offset_s for offset_s in (-4, -3, -2, -1, 0, 900)),
    ]
    warm = [20_000] * 10 + [31_000] * 5 + [50_000]
    readings = {"t_ns": [t * SECOND for t in times_s], "paths": ["/skin"], "columns": [warm]}
    assert metrics_in({"readings": readings}, start_temp_c=20.0)["body_rise_c", ""] == 11.0
