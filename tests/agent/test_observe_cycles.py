"""The clock by counted cycles, compared with the shown clocks."""

from dataclasses import replace

import pytest

from agent.collect.cpu_usage import CYCLES, OWN_STAT, STAT
from agent.collect.readings import NodeValue, Readings
from agent.judge.observe_clocks import observe_clocks
from agent.judge.observe_cycles import clock_blocks, cycle_mismatch
from agent.phone.kernel_nodes import CPUFREQ
from tests.agent.observations import BEFORE, COOLER, PROBE
from workloads.protocol.phone_facts import CoreSet

KHZ, ROWS, MS = 2_419_200, 61, 10**6
BIG3 = replace(PROBE, cores=CoreSet(name="big3", cpus=(4, 5, 6)), requested_khz={4: KHZ})
CLOCK = f"{CPUFREQ}/policy4/scaling_cur_freq"
LIMIT = f"{CPUFREQ}/policy4/scaling_max_freq"


def sampled(real: list[float], shown: list[int] | None = None, cores: int = 3) -> Readings:
    """Readings every 100 ms; `real` clocks in kHz between them, on some busy cores."""
    cycles, counted = 0.0, ["1000/1000"]
    for row, khz in enumerate(real[1:], start=1):
        cycles += khz * 1e3 * 0.1 * cores
        counted.append(f"{1000 + cycles:.0f}/{1000 + row * 100 * MS * cores}")
    columns: dict[str, list[NodeValue]] = {
        CLOCK: [*(shown or [KHZ] * len(real))],
        CYCLES: [*counted],
    }
    return Readings(tuple(columns), [row * 100 * MS for row in range(len(real))], columns)


@pytest.mark.parametrize("factor", [1.0, 1.015, 0.985])
def test_cycles_that_agree_confirm_the_clock(factor: float) -> None:
    readings = sampled([factor * KHZ] * ROWS)
    assert cycle_mismatch(clock_blocks(BIG3, readings)) is None
    assert observe_clocks(BIG3, BEFORE, BEFORE, readings, readings).counted


@pytest.mark.parametrize("factor", [0.8, 0.95, 1.1])
def test_a_clock_that_pretends_is_found_with_its_moment(factor: float) -> None:
    readings = sampled([KHZ] * 31 + [factor * KHZ] * 30)
    found = cycle_mismatch(clock_blocks(BIG3, readings))
    assert found is not None
    assert found.khz == pytest.approx(factor * KHZ, rel=0.001)
    assert found.shown_khz == KHZ
    assert found.share == pytest.approx(0.5, abs=0.06)
    assert found.at_ns == pytest.approx(3_000 * MS, abs=300 * MS)
    assert not observe_clocks(BIG3, BEFORE, BEFORE, readings, readings).counted


def test_a_governor_may_change_the_clock() -> None:
    clocks = [KHZ if row // 7 % 2 else 1_804_800 for row in range(ROWS)]
    assert cycle_mismatch(clock_blocks(BIG3, sampled([*map(float, clocks)], clocks))) is None


@pytest.mark.parametrize(
    ("khz", "cores", "found"),
    [
        (1.0 * KHZ, 3, False),  # a counter of the first cluster only
        (1.0 * KHZ, 4, True),
        (1.1 * KHZ, 4, False),  # three of four parts of the time there
        (1.4 * KHZ, 1, False),  # a counter of the other one only
        (1.4 * KHZ, 4, True),
        (0.95 * 1.1 * KHZ, 3, True),
        (1.25 * KHZ, 3, True),
    ],
)
def test_on_two_clusters_the_mean_by_their_use_counts(khz: float, cores: int, found: bool) -> None:
    readings = sampled([khz] * ROWS, cores=cores)
    readings.columns[CLOCK.replace("4", "7")] = [round(1.4 * KHZ)] * ROWS
    big4 = replace(PROBE, requested_khz={})
    assert cycle_mismatch(clock_blocks(big4, readings)) is None  # it may be anything in between
    rows = (" ".join(f"{cpu}:{10 * row}/{10 * row}" for cpu in range(4, 8)) for row in range(ROWS))
    readings.columns |= {STAT: [*rows], OWN_STAT: [4 * 10 * row for row in range(ROWS)]}
    readings._parsed.clear()
    assert (cycle_mismatch(clock_blocks(big4, readings)) is not None) is found


@pytest.mark.parametrize(("factor", "found"), [(1.4, False), (1.33, True)])
def test_other_work_on_a_slower_cluster_is_not_the_runs_clock(factor: float, found: bool) -> None:
    readings = sampled([factor * KHZ] * ROWS, cores=1)
    readings.columns[CLOCK.replace("4", "7")] = [round(1.4 * KHZ)] * ROWS
    rows = (f"4:{0.8 * row:.0f}/{10 * row} 7:{10 * row}/{10 * row}" for row in range(ROWS))
    idle = (f"5:0/{10 * row} 6:0/{10 * row}" for row in range(ROWS))
    both = (f"{one} {other}" for one, other in zip(rows, idle, strict=True))
    readings.columns |= {STAT: [*both], OWN_STAT: [10 * row for row in range(ROWS)]}
    run = clock_blocks(replace(PROBE, requested_khz={}), readings)
    assert (cycle_mismatch(run) is not None) is found


def test_without_counters_or_clocks_there_are_no_blocks() -> None:
    readings = sampled([0.5 * KHZ] * ROWS)
    for path, values in ((CYCLES, [None, "", "x/1", "1", "-1/2"] * 12 + [None]), (CLOCK, [None])):
        broken = replace(readings, columns={**readings.columns, path: [*values] * 1}, _parsed={})
        assert clock_blocks(BIG3, broken) == []


def test_the_moment_of_a_cap_and_of_an_active_cooler_is_known() -> None:
    readings = sampled([KHZ] * ROWS)
    readings.columns[LIMIT] = [KHZ] * 20 + [1_804_800] * 41
    readings.columns[COOLER] = [0] * 25 + [2] * 36
    clocks = observe_clocks(BIG3, BEFORE, BEFORE, readings, readings)
    assert clocks.limited_at_ns == {4: 2000 * MS, "thermal-cpufreq-0": 2500 * MS}
