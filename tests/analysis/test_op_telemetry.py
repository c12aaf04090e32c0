"""Attributing sensors to operations: known power per operation is recovered from its samples."""

import numpy as np
import pytest

from orchestrator.analysis.op_telemetry import OpMethod, OpRow, op_rows
from workloads.protocol.telemetry import (
    BUSY,
    CORE,
    ENERGY,
    GPU_BUSY,
    MEMORY,
    CumulativeSeries,
    SampledSeries,
    Series,
    StepWindows,
    Telemetry,
)

SHARES = np.array([30, 20, 15, 10, 10, 5, 4, 3, 2.5, 0.3, 0.2])
WATTS = np.array([5.0, 3.0, 6.0, 2.0, 4.0, 8.0, 1.0, 5.0, 3.0, 9.0, 2.0])
WINDOW_NS = 50_000_000


class SimulatedSteps:
    """Steps of a run whose operations have a known rate, and sensors that sample them."""

    def __init__(self, step_ms: float, seconds: float, seed: int = 1, jitter: float = 0.01) -> None:
        rng = np.random.default_rng(seed)
        shares = SHARES / SHARES.sum()
        count = int(seconds * 1000 / step_ms)
        lengths = step_ms * 1e6 * (1 + jitter * rng.standard_normal(count))
        parts = shares * (1 + 0.02 * rng.standard_normal((count, len(shares)))) * lengths[:, None]
        edges = np.concatenate([[0.0], np.cumsum(parts)]) + 1e9
        self.rng = rng
        self.edges = np.round(edges)
        self.starts = self.edges[:-1].reshape(count, -1)[:, 0]

    def total(self, rates: np.ndarray, moments: np.ndarray) -> np.ndarray:
        """Return the exact integral of a rate per operation."""
        repeated = np.tile(rates, len(self.starts))
        sums = np.concatenate([[0.0], np.cumsum(repeated * np.diff(self.edges) / 1e9)])
        return np.interp(moments, self.edges, sums)

    def moments(self, hz: float) -> np.ndarray:
        """Return when a sampler reads, with the jitter of a busy phone."""
        moments = np.arange(self.edges[0] + 2e7, self.edges[-1] - 1e6, 1e9 / hz)
        return np.round(moments + self.rng.uniform(0, 2e5, len(moments)))

    def counter(self, rates: np.ndarray, hz: float) -> CumulativeSeries:
        """Return a counter such as an energy meter."""
        moments = self.moments(hz)
        return CumulativeSeries(moments.astype(int).tolist(), self.total(rates, moments).tolist())

    def sampled(
        self, rates: np.ndarray, hz: float, averaging_ms: float = 0.0, noise: float = 0.01
    ) -> SampledSeries:
        """Return samples of a sensor that averages over some time."""
        moments, width = self.moments(hz), max(averaging_ms * 1e6, 1000.0)
        mean = (self.total(rates, moments) - self.total(rates, moments - width)) / width * 1e9
        noisy = mean * (1 + noise * self.rng.standard_normal(len(mean)))
        return SampledSeries(moments.astype(int).tolist(), noisy.tolist())

    def telemetry(self, traces: int, **series: Series) -> Telemetry:
        """Return the run as an agent reports it."""
        count, ops = len(self.starts), len(SHARES)
        ends = np.append(self.starts[1:], self.edges[-1])
        windows: list[tuple[int, int, int, int]] = []
        first = 0
        while first < count:
            last = int(np.searchsorted(ends, self.starts[first] + WINDOW_NS))
            last = min(last, count - 1)
            start = int(self.starts[first])
            windows.append((first, last - first + 1, start, int(ends[last]) - start))
            first = last + 1
        columns = [list(column) for column in zip(*windows, strict=True)]
        traced = []
        for step in range(0, count, max(1, count // traces)):
            start = int(self.starts[step])
            step_ends = self.edges[step * ops + 1 : (step + 1) * ops + 1].astype(int) - start
            traced.append((step, start, 0, step_ends.tolist()))
        names = tuple((f"op{index}", "matmul") for index in range(ops))
        step_windows = StepWindows(*columns, ns_min=columns[3], ns_max=columns[3])
        return Telemetry(names, traced, series, cores=2, windows=step_windows)


def errors(rows: tuple[OpRow, ...], expected: np.ndarray) -> list[float]:
    """Return the relative errors of operations above 2 % of the step that were distinguished."""
    return [
        abs((row.power_w or 0.0) - watts) / watts
        for row, watts in zip(rows, expected, strict=True)
        if row.share > 0.02 and row.method in (OpMethod.READINGS, OpMethod.REGRESSION)
    ]


@pytest.mark.parametrize("step_ms", [10, 30, 100, 300])
@pytest.mark.parametrize("kind", ["counter", "sampled"])
def test_known_power_is_recovered_within_five_percent(step_ms: float, kind: str) -> None:
    steps = SimulatedSteps(step_ms, seconds=30)
    sensor = steps.counter(WATTS, 200) if kind == "counter" else steps.sampled(WATTS, 200)
    rows = op_rows(steps.telemetry(500, **{ENERGY: sensor}))
    found = errors(rows, WATTS)
    assert len(found) >= 8, "the last one may be joined with the two tiny ones after it"
    assert max(found) < 0.05
    assert rows[0].energy_mj == pytest.approx(5.0 * 0.3 * step_ms, rel=0.05)


def test_a_sensor_that_averages_is_recognised() -> None:
    steps = SimulatedSteps(100, seconds=30)
    rows = op_rows(steps.telemetry(500, **{ENERGY: steps.sampled(WATTS, 200, averaging_ms=5)}))
    assert max(errors(rows, WATTS)) < 0.05


def test_the_method_and_the_number_of_readings_are_stated() -> None:
    steps = SimulatedSteps(100, seconds=10)
    rows = op_rows(steps.telemetry(200, **{ENERGY: steps.counter(WATTS, 200)}))
    assert rows[0].method is OpMethod.READINGS, "30 ms at 200 Hz"
    assert rows[6].method is OpMethod.REGRESSION, "4 ms at 200 Hz"
    assert rows[-1].method is OpMethod.GROUP, "0.2 % of a step"
    assert rows[0].readings == pytest.approx(0.3 * 2000, rel=0.1)
    assert rows[-1].readings < 20


def test_what_cannot_be_told_apart_is_a_group_with_the_mean_of_the_step() -> None:
    steps = SimulatedSteps(3, seconds=10)
    slow = steps.sampled(WATTS, 10, averaging_ms=100)
    rows = op_rows(steps.telemetry(5, **{ENERGY: slow}))
    mean = float((WATTS * SHARES).sum() / SHARES.sum())
    assert {row.method for row in rows} == {OpMethod.GROUP}
    assert all(row.power_w == pytest.approx(mean, rel=0.05) for row in rows)


def test_an_error_states_how_far_a_value_may_be_off() -> None:
    """Nine of ten values are within two standard errors of the truth, in a noisy case."""
    inside = total = 0
    for seed in range(8):
        steps = SimulatedSteps(30, seconds=10, seed=seed)
        sensor = steps.sampled(WATTS, 200, noise=0.3)
        for row, watts in zip(
            op_rows(steps.telemetry(500, **{ENERGY: sensor})), WATTS, strict=True
        ):
            if row.method in (OpMethod.READINGS, OpMethod.REGRESSION) and row.share > 0.02:
                assert row.power_w is not None
                assert row.power_error_w is not None
                total += 1
                inside += abs(row.power_w - watts) <= 2 * row.power_error_w
    assert total > 40
    assert inside / total > 0.85


def test_cores_gpu_and_memory_are_attributed_like_power() -> None:
    steps = SimulatedSteps(100, seconds=20)
    on_gpu = np.where(np.arange(len(SHARES)) % 2 == 0, 1.0, 0.0)
    core = 1.0 - on_gpu
    series = {
        BUSY: steps.counter(core * 2, 200),
        f"{CORE}4": steps.counter(core, 200),
        GPU_BUSY: steps.sampled(on_gpu, 200),
        MEMORY: steps.sampled(np.full(len(SHARES), 900.0), 200, noise=0.001),
    }
    rows = op_rows(steps.telemetry(200, **series))
    assert rows[0].gpu_util_pct == pytest.approx(100, abs=3)
    assert rows[1].gpu_util_pct == pytest.approx(0, abs=3)
    assert rows[1].core_util_pct[4] == pytest.approx(100, abs=3)
    assert rows[0].util_pct == pytest.approx(0, abs=3)
    assert rows[0].memory_mb == pytest.approx(900, rel=0.01)
    assert rows[0].power_w is None


def test_a_run_without_traces_or_sensors_has_no_values() -> None:
    assert op_rows(Telemetry()) == ()
    steps = SimulatedSteps(100, seconds=2)
    (first, *_) = op_rows(steps.telemetry(10))
    assert (first.method, first.power_w, first.readings) == (OpMethod.NONE, None, 0)


@pytest.mark.parametrize("kind", ["counter", "sampled"])
def test_readings_inside_an_operation_resolve_it_whether_or_not_they_differ(kind: str) -> None:
    """Two steps are too few for a fit, and the same power in all operations shows it nothing."""
    steps, even = SimulatedSteps(3000, seconds=6), np.full(len(SHARES), 4.0)
    sensor = steps.counter(even, 100) if kind == "counter" else steps.sampled(even, 100)
    rows = op_rows(steps.telemetry(2, **{ENERGY: sensor}))
    assert [row.method for row in rows[:5]] == [OpMethod.READINGS] * 5
    assert all(row.power_w == pytest.approx(4.0, rel=0.01) for row in rows[:5])
    assert rows[-1].method is not OpMethod.READINGS, "6 ms at 100 Hz"
