"""Figures: from windows and readings to metrics, each with its provenance."""

import json
import zlib

import pytest

from agent.run.energy import CURRENT, STATUS, VOLTAGE, power_of
from agent.run.figures import Measured, figures, median_step_ms, quantile
from agent.run.lines import Done, Evaluation, Memory, Output, SamplerCost, Trace, Window
from agent.run.telemetry import Readings, pack, parse_readings
from tests.builders import a_phone
from workloads.catalogue import bind, work_of
from workloads.measure import METRICS, Provenance, Provenances, Source, kind_of
from workloads.phone import Gauge, ThermalZone

PHONE = Provenance(source=Source.PHONE)
ALL = Provenances(time=PHONE, clock=PHONE, heat=PHONE, energy=PHONE)
ZONE = ThermalZone(path="/z", type="cpu", scale=0.001)
S = 10**9
GAUGE = Gauge(discharge_sign=-1, unit_a=1e-6, period_s=0.5)


def windows(*step_ms: float, n: int = 5, t_s: float = 0.0) -> list[Window]:
    made, t_ns, first = [], int(t_s * S), 0
    for ms in step_ms:
        ns = int(ms * n * 1e6)
        made.append(
            Window(first=first, n=n, t_ns=t_ns, ns=ns, ns_min=ns // n - 1, ns_max=ns // n + 1)
        )
        t_ns, first = t_ns + ns, first + n
    return made


def readings(
    current: int = -500_000, voltage: int = 4_000_000, status: str = "Discharging"
) -> Readings:
    rows = range(11)
    return Readings(
        paths=("/z", CURRENT, VOLTAGE, STATUS),
        t_ns=[row * S for row in rows],
        columns={
            "/z": [30_000 + 1000 * row for row in rows],
            CURRENT: [current for _ in rows],
            VOLTAGE: [voltage for _ in rows],
            STATUS: [status for _ in rows],
        },
    )


def with_windows(made: list[Window]) -> Output:
    output = Output("ab")
    output.windows += made
    return output


def measured(**changes: object) -> Measured:
    made = windows(*[10.0] * 200)
    base = {
        "work": work_of(bind("mlp-4", {"batch_size": 32})),
        "output": with_windows(made),
        "done": Done(steps=1000, ns=10 * S, t_ns=10 * S, peak_rss_kb=2048),
        "readings": readings(),
        "facts": a_phone().model_copy(update={"cpu_zones": (ZONE,)}),
        "cpus": (4, 5),
        "start_temp_c": 29.5,
        "clock_held_share": 1.0,
        "power": power_of(readings(), GAUGE),
        "idle_w": 0.5,
    }
    return Measured(**(base | changes))  # type: ignore[arg-type]


def test_a_short_run_yields_its_figures() -> None:
    """Values of a run that can be reckoned by hand."""
    found = {metric.name: metric.value for metric in figures(measured(), ALL)}
    assert found["step_ms"] == pytest.approx(10.0)
    assert found["samples_per_s"] == pytest.approx(3200)
    assert found["gflops"] == pytest.approx(measured().work.flops / 1e7)
    assert found["start_temp_c"] == 29.5
    assert found["peak_temp_c"] == pytest.approx(40.0)
    assert found["energy_j"] == pytest.approx(20.0)  # 0.5 A at 4 V for 10 s
    assert found["energy_per_step_mj"] == pytest.approx(20.0)
    assert found["peak_rss_mb"] == pytest.approx(2.0)
    assert "first_minute_step_ms" not in found


def test_phases_memory_and_the_samplers_cost_become_figures() -> None:
    """What the extended lines tell, in the units of the table."""
    run = measured()
    told = [window.model_copy(update={"phases_ns": (1, 2, 3, 4)}) for window in run.windows]
    output = with_windows(told)
    kinds = ("parameter", "gradient", "state", "activation", "input", "workspace", "dataset")
    sizes = {kind: (index + 1) * 2**20 for index, kind in enumerate(kinds)}
    output.memory = Memory(**sizes)
    late = {"late_p50_ns": 1, "late_p99_ns": 2_000_000, "late_max_ns": 3}
    output.sampler = SamplerCost(readings=9, cpu_ns=10**8, core=-1, **late)
    output.evaluations = [
        Evaluation(step=step, t_ns=1, ns=1, accuracy=accuracy)
        for step, accuracy in ((5, 0.25), (10, 0.5))
    ]
    found = {metric.name: metric.value for metric in figures(measured(output=output), ALL)}
    phases = [found[f"{name}_ms"] for name in ("load", "forward", "backward", "update")]
    assert phases == pytest.approx([0.2e-6, 0.4e-6, 0.6e-6, 0.8e-6])  # of five steps a window
    assert [found[f"{kind}_mb"] for kind in kinds] == [1, 2, 3, 4, 5, 6, 7]
    assert found["sampler_share"] == pytest.approx(0.01)
    assert found["sampler_late_ms"] == pytest.approx(2.0)
    assert (found["accuracy_first"], found["accuracy_last"]) == (0.25, 0.5)


def test_a_charge_lasts_for_so_many_steps() -> None:
    """4 V and 3 Ah are 43.2 kJ; a step takes 20 mJ."""
    found = {metric.name: metric.value for metric in figures(measured(charge_uah=3_000_000), ALL)}
    assert found["steps_per_charge"] == pytest.approx(2_160_000)
    assert found["energy_per_sample_mj"] == pytest.approx(20 / 32)
    assert found["power_w"] == pytest.approx(2.0)


def test_traced_steps_tell_how_alike_they_are_and_what_only_moves_data() -> None:
    """Two steps of one operation each; a product copies nothing."""
    output = with_windows(
        [window.model_copy(update={"phases_ns": (10, 30, 0, 0)}) for window in measured().windows]
    )
    output.traces = [
        Trace(step=step, t_ns=step * S, first=0, ends_ns=(end,)) for step, end in ((0, 8), (1, 8))
    ]
    work = work_of(bind("sgemm", {}))
    found = {m.name: m.value for m in figures(measured(output=output, work=work), ALL)}
    assert found["step_similarity"] == 1.0
    assert found["copy_share"] == pytest.approx(0.25)  # the loading


def test_cores_have_figures_of_their_own() -> None:
    """One a core, under its number; the average is that of the run's cores."""
    stat = [
        f"4:{90 * row}/{100 * row} 5:{100 * row}/{100 * row} 0:0/{100 * row}" for row in range(11)
    ]
    seen = readings()
    seen.columns["/proc/stat"] = list(stat)
    found = {metric.name: metric.value for metric in figures(measured(readings=seen), ALL)}
    assert found["cpu_util_pct"] == pytest.approx(95)
    assert found["core_util_pct.4"] == pytest.approx(90)
    assert (found["core_idle_share.0"], found["core_idle_share.5"]) == (1.0, 0.0)


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
def test_only_what_is_in_the_table_is_a_metric(name: str, known: bool) -> None:
    """A number follows the name exactly where there is one of each."""
    assert (kind_of(name) is not None) is known


def test_every_metric_carries_unit_and_provenance_of_its_family() -> None:
    """No figure leaves without saying where it was made."""
    for metric in figures(measured(), ALL):
        kind = kind_of(metric.name)
        assert kind is not None
        assert metric.unit == kind.unit
        assert metric.provenance == PHONE


@pytest.mark.parametrize("family", ["time", "clock", "heat", "energy"])
def test_a_family_that_is_not_offered_yields_nothing(family: str) -> None:
    """Null provenance: no such figure, whatever the nodes say."""
    offered = ALL.model_copy(update={family: None})
    found = {metric.name for metric in figures(measured(), offered)}
    assert found
    assert not {name for name in found if METRICS[name.split(".")[0]].family == family}


def test_a_long_run_compares_its_first_and_last_minute() -> None:
    """Ten minutes that slow down by half."""
    made = windows(*[10.0] * 3000, *[15.0] * 2000)
    run = measured(output=with_windows(made), done=Done(steps=25_000, ns=1, t_ns=1))
    found = {metric.name: metric.value for metric in figures(run, ALL)}
    assert found["first_minute_step_ms"] == pytest.approx(10.0)
    assert found["last_minute_step_ms"] == pytest.approx(15.0)


def test_medians_weigh_steps_not_windows() -> None:
    """One window of ten steps outweighs two of one."""
    made = [*windows(1.0, 1.0, n=1), *windows(5.0, n=10)]
    assert median_step_ms(made) == pytest.approx(5.0)
    assert median_step_ms(windows(1.0, 3.0, n=1)) == pytest.approx(2.0)
    assert quantile([1, 2, 3, 4, 5], 0.5) == 3


def test_readings_survive_torn_and_foreign_lines() -> None:
    """A row that is not whole is left out; the others stand."""
    rows = [
        {"line": "nodes", "paths": ["/a", "/b"]},
        {"line": "reading", "t_ns": 1, "v": [1, "Charging\x1b"]},
        {"line": "reading", "t_ns": 2, "v": [1]},
        {"line": "reading", "t_ns": 3, "v": [None, True]},
        {"line": "reading", "t_ns": 2, "v": [7, 7]},
    ]
    content = "\n".join(map(json.dumps, rows)).encode() + b'\nnot json\n{"line":"reading","t_ns":9'
    found = parse_readings(content)
    assert found.t_ns == [1, 3]
    assert found.columns == {"/a": [1, None], "/b": ["Charging", None]}


def test_the_blob_holds_windows_and_readings_in_columns() -> None:
    """What was measured can be read back from the blob alone."""
    digest, blob = pack(with_windows(windows(1.0, 2.0)), readings())
    content = json.loads(zlib.decompress(blob))
    assert len(digest) == 64
    assert content["windows"]["n"] == [5, 5]
    assert content["readings"]["columns"][0][0] == 30_000
