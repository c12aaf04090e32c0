"""The clocks of a run: as the kernel counted them, and as they were sampled."""

from dataclasses import replace

import pytest

from agent.collect.readings import NodeValue, Readings
from agent.collect.run_probe import RunProbe
from agent.judge.observe_clocks import ClockObservation, observe_clocks, pinned_share
from agent.judge.run_observation import longest_gap
from agent.phone.kernel_nodes import CPUFREQ
from tests.agent.observations import BEFORE, COOLER, PROBE
from workloads.protocol.phone_facts import CoreSet

BIG3 = replace(PROBE, cores=CoreSet(name="big3", cpus=(4, 5, 6)), requested_khz={4: 2419200})
CLOCK = f"{CPUFREQ}/policy4/scaling_cur_freq"
LIMIT = f"{CPUFREQ}/policy4/scaling_max_freq"


def readings(clocks: list[int | None], limit: int = 2419200, cooler: int = 0) -> Readings:
    rows = len(clocks)
    columns: dict[str, list[NodeValue]] = {
        CLOCK: [*clocks],
        LIMIT: [limit] * rows,
        COOLER: [cooler] * rows,
    }
    return Readings(tuple(columns), list(range(rows)), columns)


def observed(
    sampled: Readings, span: tuple[int, int] = (0, 100), probe: RunProbe = BIG3
) -> ClockObservation:
    return observe_clocks(probe, BEFORE, BEFORE, sampled, sampled.within(span))


@pytest.mark.parametrize(
    ("clocks", "share"),
    [
        ([2419200] * 10, 1.0),  # pinned
        ([2419100] * 10, 1.0),  # a driver that reports the measured clock
        ([2419200] * 5 + [1804800] * 5, 0.5),  # throttled half of the time
        ([None] * 10, None),  # not readable
        ([2419200] * 3, None),  # too few readings
    ],
)
def test_sampled_clocks(clocks: list[int | None], share: float | None) -> None:
    assert observed(readings(clocks)).pinned_share == share


def test_only_the_timed_part_counts() -> None:
    clocks: list[int | None] = [*[710400] * 5, *[2419200] * 10, *[710400] * 5]
    assert observed(readings(clocks), (5, 14)).pinned_share == 1.0


def test_caps_and_coolers_are_noticed() -> None:
    cool, hot = readings([2419200] * 5), readings([1804800] * 5, limit=1804800, cooler=3)
    assert (observed(cool).capped_khz, observed(cool).active_coolers) == ({}, ())
    assert observed(hot).capped_khz == {4: 1804800}
    assert observed(hot).active_coolers == ("thermal-cpufreq-0",)


def test_only_the_clocks_of_the_requested_cores_are_sampled() -> None:
    nodes = BIG3.sampled_nodes
    assert {CLOCK, LIMIT, BIG3.facts.cpu_zones[0].path} <= set(nodes)
    assert not [node for node in nodes if "policy0" in node]


def test_the_worst_policy_decides() -> None:
    before = {4: "1 0\n2 0", 7: "5 0\n6 0"}
    after = {4: "1 10\n2 990", 7: "5 0\n6 1000"}
    assert pinned_share({4: 2, 7: 6}, before, after) == pytest.approx(0.99)
    assert pinned_share({4: 2}, {4: "2 0"}, {4: "2 20"}) is None  # too few ticks
    assert pinned_share({}, {}, {}) is None


@pytest.mark.parametrize(
    ("moments", "gap_s"),
    [
        ([0, 2, 4, 6, 8], 2.0),
        ([0, 2, 9], 6.0),  # readings after the run do not count
        ([], 8.0),
        ([-5, 1, 3, 12], 5.0),
    ],
)
def test_the_longest_time_without_a_reading(moments: list[int], gap_s: float) -> None:
    t_ns = [moment * 10**9 for moment in moments]
    assert longest_gap(t_ns, (0, 8 * 10**9)).seconds == gap_s
