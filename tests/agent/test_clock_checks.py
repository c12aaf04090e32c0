"""The scene: clocks as counted and as sampled."""

import pytest

from agent.control.clocks import policy_node
from agent.run.scene import Scene, longest_gap_s
from agent.run.telemetry import Readings
from tests.builders import a_phone
from workloads.phone import CoreSet

FACTS = a_phone()
SCENE = Scene(
    facts=FACTS,
    cores=CoreSet(name="big3", cpus=(4, 5, 6)),
    asked_khz={4: 2419200},
    coolers={"/sys/class/thermal/cooling_device0/cur_state": "thermal-cpufreq-0"},
)
CLOCK = policy_node(4, "scaling_cur_freq")
LIMIT = policy_node(4, "scaling_max_freq")


def readings(clocks: list[int | None], limit: int = 2419200, cooler: int = 0) -> Readings:
    rows = len(clocks)
    columns = {
        CLOCK: list(clocks),
        LIMIT: [limit] * rows,
        next(iter(SCENE.coolers)): [cooler] * rows,
    }
    return Readings(tuple(columns), list(range(rows)), columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clocks", "share"),
    [
        ([2419200] * 10, 1.0),  # held
        ([2419100] * 10, 1.0),  # a driver that reports what it measures
        ([2419200] * 5 + [1804800] * 5, 0.5),  # throttled half of the time
        ([None] * 10, None),  # not readable
        ([2419200] * 3, None),  # too few to say
    ],
)
def test_sampled_clocks(clocks: list[int | None], share: float | None) -> None:
    """The share of samples at the asked clock."""
    assert SCENE.sampled_share(readings(clocks), (0, 100)) == share


def test_only_the_timed_part_counts() -> None:
    """What the clocks did before and after is of no interest."""
    clocks: list[int | None] = [710400] * 5 + [2419200] * 10 + [710400] * 5
    assert SCENE.sampled_share(readings(clocks), (5, 14)) == 1.0


def test_caps_and_coolers_are_noticed() -> None:
    """A limit below what was asked, and a cooling device that is not at rest."""
    calm, hot = readings([2419200] * 5), readings([1804800] * 5, limit=1804800, cooler=3)
    assert (SCENE.caps_khz(calm), SCENE.busy_coolers(calm)) == ({}, ())
    assert SCENE.caps_khz(hot) == {4: 1804800}
    assert SCENE.busy_coolers(hot) == ("thermal-cpufreq-0",)


def test_what_is_sampled() -> None:
    """Zones, clocks of the chosen cores' policies, coolers, the gauge; no other policy's clocks."""
    nodes = SCENE.sampled
    assert CLOCK in nodes
    assert LIMIT in nodes
    assert not [node for node in nodes if "policy0" in node]
    assert FACTS.cpu_zones[0].path in nodes


@pytest.mark.parametrize(
    ("moments", "gap_s"),
    [
        ([0, 2, 4, 6, 8], 2.0),
        ([0, 2, 9], 6.0),  # cut off: what lies after the run does not count
        ([], 8.0),
        ([-5, 1, 3, 12], 5.0),
    ],
)
def test_the_longest_time_without_a_reading(moments: list[int], gap_s: float) -> None:
    """Within the timed part, its ends included."""
    seen = [moment * 10**9 for moment in moments]
    assert longest_gap_s(seen, (0, 8 * 10**9)) == gap_s
