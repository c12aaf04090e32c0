"""Metrics: from windows and readings to values, each with its provenance."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.collect.cpu_usage import core_usage
from agent.collect.energy import CURRENT, STATUS, VOLTAGE, power_from_readings
from agent.collect.readings import Readings, build_telemetry, parse_readings
from agent.collect.runner_output import (
    DoneRecord,
    EvaluationRecord,
    MemoryRecord,
    ResumeRecord,
    SamplerRecord,
    StepWindow,
    TraceRecord,
    median_step_ms,
)
from agent.judge.run_metrics import measure, quantile
from agent.judge.run_observation import RunObservation
from agent.judge.work_rules import ClaimedWork
from tests.agent.observations import BEFORE, PROBE, an_observation, output_of
from workloads.catalogue import bind, cost_of
from workloads.protocol.metrics import METRICS, Provenance, Provenances, Source, metric_kind
from workloads.protocol.phone_facts import CoreSet, FuelGauge, ThermalZone
from workloads.protocol.telemetry import unpack_telemetry

PHONE = Provenance(source=Source.PHONE)
ALL = Provenances(time=PHONE, clock=PHONE, heat=PHONE, energy=PHONE)
ZONE = ThermalZone(path="/z", type="cpu", scale=0.001)
S = 10**9
GAUGE = FuelGauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)
COST = cost_of(bind("mlp-4", {"batch_size": 32}))
DONE = DoneRecord(steps=1000, ns=10 * S, t_ns=10 * S, peak_rss_kb=2048)


def windows(*step_ms: float, n: int = 5, t_s: float = 0.0) -> list[StepWindow]:
    result, t_ns, first = [], int(t_s * S), 0
    for ms in step_ms:
        ns = int(ms * n * 1e6)
        result.append(
            StepWindow(first=first, n=n, t_ns=t_ns, ns=ns, ns_min=ns // n - 1, ns_max=ns // n + 1)
        )
        t_ns, first = t_ns + ns, first + n
    return result


def readings(
    current: int = -500_000,
    voltage: int = 4_000_000,
    status: str = "Discharging",
    every_s: int = 1,
) -> Readings:
    rows = range(11)
    return Readings(
        paths=("/z", CURRENT, VOLTAGE, STATUS),
        t_ns=[row * every_s * S for row in rows],
        columns={
            "/z": [30_000 + 1000 * row for row in rows],
            CURRENT: [current for _ in rows],
            VOLTAGE: [voltage for _ in rows],
            STATUS: [status for _ in rows],
        },
    )


def a_run(**changes: Any) -> RunObservation:
    sampled = changes.get("readings", readings())
    cores = CoreSet(name="big2", cpus=(4, 5))
    facts = PROBE.facts.model_copy(update={"cpu_zones": (ZONE,)})
    fields: dict[str, Any] = {
        "provenance": ALL,
        "claimed": ClaimedWork(COST, DONE, warmup=0, source=Source.PHONE),
        "output": output_of(windows(*[10.0] * 200)),
        "readings": sampled,
        "probe": replace(PROBE, facts=facts, cores=cores),
        "before": replace(BEFORE, temp_c=29.5),
        "sampled_temps_c": tuple(temp_c for _, temp_c in sampled.hottest_c([ZONE])),
        "core_usage": core_usage(sampled),
        "power": power_from_readings(sampled, GAUGE),
        "idle_w": 0.5,
    }
    return an_observation(**(fields | changes))


def values(run: RunObservation) -> dict[str, float]:
    return {metric.name: metric.value for metric in measure(run)}


def test_a_short_run_yields_its_metrics() -> None:
    metrics = values(a_run())
    assert metrics["step_ms"] == pytest.approx(10.0)
    assert metrics["samples_per_s"] == pytest.approx(3200)
    assert metrics["gflops"] == pytest.approx(COST.flops / 1e7)
    assert metrics["start_temp_c"] == 29.5
    assert metrics["peak_temp_c"] == pytest.approx(40.0)
    assert metrics["energy_j"] == pytest.approx(20.0)  # 0.5 A at 4 V for 10 s
    assert metrics["energy_per_step_mj"] == pytest.approx(20.0)
    assert metrics["peak_rss_mb"] == pytest.approx(2.0)
    assert "first_minute_step_ms" not in metrics


def test_phases_memory_and_the_samplers_cost_become_metrics() -> None:
    phases = {"phases_ns": (1, 2, 3, 4)}
    output = output_of([window.model_copy(update=phases) for window in windows(*[10.0] * 200)])
    kinds = ("parameter", "gradient", "state", "activation", "input", "workspace", "dataset")
    sizes = {kind: (index + 1) * 2**20 for index, kind in enumerate(kinds)}
    output.memory = MemoryRecord(**sizes)
    late = {"late_p50_ns": 1, "late_p99_ns": 2_000_000, "late_max_ns": 3}
    output.sampler = SamplerRecord(readings=9, cpu_ns=10**8, core=-1, **late)
    output.evaluations = [
        EvaluationRecord(step=step, t_ns=1, ns=1, accuracy=accuracy)
        for step, accuracy in ((5, 0.25), (10, 0.5))
    ]
    metrics = values(a_run(output=output))
    times = [metrics[f"{name}_ms"] for name in ("load", "forward", "backward", "update")]
    assert times == pytest.approx([0.2e-6, 0.4e-6, 0.6e-6, 0.8e-6])  # five steps per window
    assert [metrics[f"{kind}_mb"] for kind in kinds] == [1, 2, 3, 4, 5, 6, 7]
    assert metrics["sampler_share"] == pytest.approx(0.01)
    assert metrics["sampler_late_ms"] == pytest.approx(2.0)
    assert (metrics["accuracy_first"], metrics["accuracy_last"]) == (0.25, 0.5)


def test_the_number_of_steps_per_charge() -> None:
    metrics = values(a_run(before=replace(BEFORE, full_charge_uah=3_000_000)))
    assert metrics["steps_per_charge"] == pytest.approx(2_160_000)  # 4 V, 3 Ah, 20 mJ per step
    assert metrics["energy_per_sample_mj"] == pytest.approx(20 / 32)
    assert metrics["power_w"] == pytest.approx(2.0)


def test_traced_steps_give_similarity_and_copy_share() -> None:
    phases = {"phases_ns": (10, 30, 0, 0)}
    output = output_of([window.model_copy(update=phases) for window in windows(*[10.0] * 200)])
    output.traces = [
        TraceRecord(step=step, t_ns=step * S, first=0, ends_ns=(end,))
        for step, end in ((0, 8), (1, 8))
    ]
    product = ClaimedWork(cost_of(bind("sgemm", {})), DONE, warmup=0, source=Source.PHONE)
    metrics = values(a_run(output=output, claimed=product))
    assert metrics["step_similarity"] == 1.0
    assert metrics["copy_share"] == pytest.approx(0.25)  # loading; a product copies nothing


def test_each_core_has_its_metrics() -> None:
    stat = [
        f"4:{90 * row}/{100 * row} 5:{100 * row}/{100 * row} 0:0/{100 * row}" for row in range(11)
    ]
    sampled = readings()
    sampled.columns["/proc/stat"] = list(stat)
    metrics = values(a_run(readings=sampled))
    assert metrics["cpu_util_pct"] == pytest.approx(95)  # the mean of the run's cores
    assert metrics["core_util_pct.4"] == pytest.approx(90)
    assert (metrics["core_idle_share.0"], metrics["core_idle_share.5"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("step_ms", True),
        ("core_util_pct.7", True),
        ("core_util_pct", False),
        ("rail_power_w.VDD_IN", True),
        ("core_util_pct.x y", False),
        ("step_ms.3", False),
        ("speed", False),
    ],
)
def test_only_listed_names_are_metrics(name: str, known: bool) -> None:
    assert (metric_kind(name) is not None) is known


def test_every_metric_has_unit_and_provenance_of_its_family() -> None:
    for metric in measure(a_run()):
        kind = metric_kind(metric.name)
        assert kind is not None
        assert metric.unit == kind.unit
        assert metric.provenance == PHONE


@pytest.mark.parametrize("family", ["time", "clock", "heat", "energy"])
def test_a_family_that_is_not_offered_yields_nothing(family: str) -> None:
    offered = ALL.model_copy(update={family: None})
    metrics = values(a_run(provenance=offered)).keys()
    assert metrics
    assert not {name for name in metrics if METRICS[name.split(".")[0]].family == family}


def test_a_long_run_compares_its_first_and_last_minute() -> None:
    slowing = output_of(windows(*[10.0] * 3000, *[15.0] * 2000))
    metrics = values(a_run(output=slowing))
    assert metrics["first_minute_step_ms"] == pytest.approx(10.0)
    assert metrics["last_minute_step_ms"] == pytest.approx(15.0)


def test_a_run_that_continued_has_no_metric_of_the_whole_run() -> None:
    slowing = output_of(windows(*[10.0] * 3000, *[15.0] * 2000))
    done = DONE.model_copy(update={"first_step_ns": S})
    claimed = ClaimedWork(COST, done, 5, Source.PHONE)
    run = a_run(output=slowing, claimed=claimed, readings=readings(every_s=30))
    whole = values(run).keys()
    slowing.resume = ResumeRecord(step=7, t_ns=0, same_cores=True, lost_ns=None)
    missing = whole - values(run).keys()
    assert missing == {"sustained_speed_ratio", "first_step_ms", "energy_j", "energy_net_j"}


def test_medians_weight_steps_not_windows() -> None:
    unequal = [*windows(1.0, 1.0, n=1), *windows(5.0, n=10)]
    assert median_step_ms(unequal) == pytest.approx(5.0)
    assert median_step_ms(windows(1.0, 3.0, n=1)) == pytest.approx(2.0)
    assert quantile([1, 2, 3, 4, 5], 0.5) == 3


def test_incomplete_and_unknown_lines_are_skipped() -> None:
    rows = [
        {"line": "nodes", "paths": ["/a", "/b"]},
        {"line": "reading", "t_ns": 1, "v": [1, "Charging\x1b"]},
        {"line": "reading", "t_ns": 2, "v": [1]},
        {"line": "reading", "t_ns": 3, "v": [None, True]},
        {"line": "reading", "t_ns": 2, "v": [7, 7]},
    ]
    content = "\n".join(map(json.dumps, rows)).encode() + b'\nnot json\n{"line":"reading","t_ns":9'
    metrics = parse_readings(content)
    assert metrics.t_ns == [1, 3]
    assert metrics.columns == {"/a": [1, None], "/b": ["Charging", None]}


def test_the_blob_has_windows_and_readings_in_columns() -> None:
    digest, blob = build_telemetry(output_of(windows(1.0, 2.0)), readings())
    content = unpack_telemetry(blob)
    assert len(digest) == 64
    assert content["windows"]["n"] == [5, 5]
    assert content["readings"]["columns"][0][0] == 30_000
