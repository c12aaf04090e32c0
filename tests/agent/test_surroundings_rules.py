"""What happens around the work: memory clocks, and the app in the foreground."""

from dataclasses import replace

import pytest

from agent.collect.readings import NodeValue, Readings
from agent.collect.run_probe import FOREGROUND, find_bus_nodes
from agent.judge.surroundings_rules import check_bus_clocks, check_foreground, parse_processes
from tests.agent.observations import PROBE, an_observation
from workloads.protocol.verdict import Reason, ReasonCode

BUS = "/sys/class/devfreq/soc:qcom,cpu-llcc-ddr-bw/cur_freq"
ROWS = 80


def reasons(path: str, values: list[NodeValue]) -> list[Reason]:
    run = an_observation()
    step_ns = (run.span[1] - run.span[0]) // len(values)
    moments = [run.span[0] + row * step_ns for row in range(len(values))]
    seen = replace(
        run,
        probe=replace(PROBE, bus_nodes=(BUS,)),
        readings=Readings((path,), moments, {path: values}),
    )
    return [*check_bus_clocks(seen), *check_foreground(seen)]


@pytest.mark.parametrize(
    "clocks",
    [
        [2092] * ROWS,
        [2092, 1555, 768, 1555] * (ROWS // 4),  # a governor that follows the traffic
        [768] * 4 + [2092] * (ROWS - 4),  # it wakes up late
        [2092] * 40 + [768] * 4 + [2092] * 36,  # a moment
        [None] * ROWS,
        [2092] * 2,
    ],
)
def test_a_governor_may_change_the_memory_clock(clocks: list[NodeValue]) -> None:
    assert reasons(BUS, clocks) == []


def test_a_lowered_memory_clock_is_found_with_its_moment() -> None:
    (reason,) = reasons(BUS, [2092] * 40 + [1555] * 20 + [2092] * 20)
    assert reason.code is ReasonCode.BUS_CLOCK_LOWERED
    assert reason.values["change"] == pytest.approx(1555 / 2092 - 1)
    assert reason.values["share"] == pytest.approx(0.25)
    run = an_observation()
    assert reason.values["at_s"] == pytest.approx(run.span_s / 2, rel=0.05)


@pytest.mark.parametrize(
    ("name", "is_bus"),
    [
        ("soc:qcom,cpu-llcc-ddr-bw", True),
        ("soc:qcom,cpubw", True),
        ("17000010.devfreq_mif", True),
        ("mtk-dvfsrc-devfreq", True),
        ("ddrfreq", True),
        ("soc:qcom,cpu4-llcc-lat", False),  # the vote of one cluster
        ("soc:qcom,gpubw", False),
        ("5000000.qcom,kgsl-3d0", False),
        ("1d84000.ufshc", False),
    ],
)
def test_the_memory_clock_is_known_by_its_name(name: str, is_bus: bool) -> None:
    path = f"/sys/class/devfreq/{name}/cur_freq"
    assert find_bus_nodes({path: "1"}) == ((path,) if is_bus else ())


def test_an_app_in_the_foreground_is_found_with_its_moment() -> None:
    (reason,) = reasons(FOREGROUND, ["812;900"] * 20 + ["812;900;4711"] * 20)
    assert (reason.code, reason.values["pid"]) == (ReasonCode.FOREGROUND_CHANGED, 4711)
    assert reason.values["at_s"] == pytest.approx(an_observation().span_s / 2, rel=0.05)


@pytest.mark.parametrize(
    "lists",
    [
        ["812"] * 20,
        ["812;900"] * 10 + ["812"] * 10,  # one that ends
        ["812"] * 10 + ["812;5"] + ["812"] * 9,  # one that only starts another
        [None] * 20,
        [";".join(map(str, range(10**4, 10**4 + 190)))] * 20,  # cut off
    ],
)
def test_the_foreground_may_stay_or_end(lists: list[NodeValue]) -> None:
    assert reasons(FOREGROUND, lists) == []


def test_lists_of_processes_are_parsed() -> None:
    assert parse_processes("12;7") == {7, 12}
    assert parse_processes(12) == {12}
    assert parse_processes("") == frozenset()
    assert parse_processes("x;-1;3") == {3}
    assert parse_processes(None) is None
