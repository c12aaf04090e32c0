"""Rules on the evidence itself: time stamps, readings, processor time, power."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.collect.cpu_usage import CYCLES, FIRST_THREAD, OWN_STAT, STAT
from agent.collect.energy import EnergyGrade, PowerObservation
from agent.collect.readings import NodeValue, Readings
from agent.collect.runner_output import StepWindow
from agent.judge.disturbance_effect import effect_on_steps
from agent.judge.evidence_rules import (
    check_own_time,
    check_power,
    check_readings,
    check_time_stamps,
)
from agent.judge.observe_steps import (
    CHANGE_MAX,
    CHANGE_MIN,
    StepSeries,
    change_limit,
    step_changes,
    unrest,
)
from agent.judge.run_observation import RunObservation
from tests.agent.observations import CLAIMED, PROBE, SECOND_NS, an_observation, output_of
from workloads.protocol.condition import Condition, Protocol
from workloads.protocol.metrics import Source
from workloads.protocol.verdict import ReasonCode

RECORDED = Path(__file__).parents[2] / "agent/virtual/physics/recorded_step_times.json"
DONE = CLAIMED.done.model_copy(update={"ns": 10 * SECOND_NS, "waited_ns": SECOND_NS})
SIMULATED = replace(CLAIMED, source=Source.SIMULATED, done=DONE)


def windows(lengths_ns: list[int], steps: int = 10) -> list[StepWindow]:
    """Build windows of equal steps that follow one another."""
    found, t_ns = [], 0
    for index, ns in enumerate(lengths_ns):
        longest_ns = ns // steps + 1
        window = {"first": steps * index, "n": steps, "t_ns": t_ns, "ns": ns}
        found.append(StepWindow(**window, ns_min=0, ns_max=longest_ns))
        t_ns += ns
    return found


def sampled(**columns: list[NodeValue]) -> RunObservation:
    """Build a run of ten seconds with these columns, read ten times per second."""
    nodes = {"stat": STAT, "own": OWN_STAT, "first": FIRST_THREAD, "cycles": CYCLES}
    named = {nodes[name]: column for name, column in columns.items()}
    t_ns = [row * SECOND_NS // 10 for row in range(101)]
    readings = Readings(tuple(named), t_ns, named)
    return an_observation(span_s=10.0, readings=readings, claimed=SIMULATED)


@pytest.mark.parametrize(
    ("tick_ns", "coarse"), [(10_000_000, True), (1_500_000, True), (500_000, False), (52, False)]
)
def test_time_stamps_of_a_coarse_clock(tick_ns: int, coarse: bool) -> None:
    lengths = [(100_000_000 + 3_300_007 * (index % 7)) // tick_ns * tick_ns for index in range(60)]
    found = list(check_time_stamps(an_observation(output=output_of(windows(lengths)))))
    assert [reason.code for reason in found] == [ReasonCode.TIME_STAMPS_COARSE] * coarse


def test_equal_windows_and_few_windows_say_nothing_about_the_clock() -> None:
    for lengths in ([100_000_000] * 60, [100_000_000, 120_000_000] * 5):
        assert not list(check_time_stamps(an_observation(output=output_of(windows(lengths)))))


STAT_ROWS: list[NodeValue] = [f"4:{row * 10}/{row * 10}" for row in range(101)]


@pytest.mark.parametrize(
    ("columns", "lost"),
    [
        ({"stat": STAT_ROWS}, None),
        ({"stat": [*STAT_ROWS[:95], *[None] * 6]}, None),
        ({"stat": [*STAT_ROWS[:50], *[None] * 51]}, 51 / 101),
        ({"stat": [STAT_ROWS[5]] * 101}, 1.0),
        ({"stat": ["nonsense", *["none"] * 100]}, 1.0),
        ({"stat": [None] * 101}, 1.0),  # a rooted phone has it
        ({"cycles": [None] * 101}, None),  # not every kernel counts them
        ({"cycles": [None, *["5/7"] * 60, *[None] * 40]}, 41 / 101),
    ],
)
def test_nodes_that_can_no_longer_be_read(columns: dict[str, Any], lost: float | None) -> None:
    found = [reason.values["share"] for reason in check_readings(sampled(**columns))]
    assert found == ([] if lost is None else [pytest.approx(lost)])


def test_an_unrooted_phone_may_hide_the_use_of_its_cores() -> None:
    stock = replace(PROBE, facts=PROBE.facts.model_copy(update={"rooted": False}))
    hidden = replace(sampled(stat=[None] * 101), probe=stock)
    assert not list(check_readings(hidden))
    # But not only from the first step on.
    t_ns, column = [-1, *hidden.readings.t_ns], ["4:1/1", *hidden.readings.column(STAT)]
    lost = replace(hidden, readings=Readings((STAT,), t_ns, {STAT: column}))
    assert [reason.values["share"] for reason in check_readings(lost)] == [1.0]


def test_a_process_that_was_stopped_for_a_part_of_the_time() -> None:
    own: dict[float, list[NodeValue]] = {
        share: [round(10 * row * share) for row in range(101)] for share in (4.0, 0.98, 0.8)
    }
    found = {share: list(check_own_time(sampled(own=ticks))) for share, ticks in own.items()}
    assert {share: len(reasons) for share, reasons in found.items()} == {4.0: 0, 0.98: 0, 0.8: 1}
    assert found[0.8][0].values["share"] == pytest.approx(0.8)
    on_host = replace(sampled(own=own[0.8]), claimed=replace(CLAIMED, source=Source.HOST))
    assert not list(check_own_time(on_host))


@pytest.mark.parametrize(
    ("ran", "waited", "found"),
    [
        (0.9, 0.0, 0),  # for the rest of the time it waited for the other threads
        (0.7, 0.2, 0),  # other work had its core: the use of the cores shows that
        (0.8, 0.0, 1),
        (0.0, 0.0, 0),  # a kernel that does not count
    ],
)
def test_the_first_of_several_threads_shows_a_stop_of_all(
    ran: float, waited: float, found: int
) -> None:
    own: list[NodeValue] = [38 * row for row in range(101)]
    rows = range(0, 101 * SECOND_NS // 10, SECOND_NS // 10)
    first: list[NodeValue] = [f"{round(ran * ns)} {round(waited * ns)} 7" for ns in rows]
    assert len(list(check_own_time(sampled(own=own, first=first)))) == found


@pytest.mark.parametrize(
    ("factor", "first", "last", "found"),
    [
        (1.0, 0, 100, 0),
        (1.3, 50, 100, 1),  # from the middle on
        (0.8, 60, 90, 1),
        (1.3, 0, 15, 0),  # gauges settle at first
        (1.3, 50, 56, 0),
        (1.08, 50, 100, 0),
    ],
)
def test_power_that_changes_by_itself(factor: float, first: int, last: int, found: int) -> None:
    points = [
        (row * SECOND_NS // 10, (4 + row % 2 / 20) * (factor if first <= row < last else 1.0))
        for row in range(101)
    ]
    run = an_observation(10.0, power=PowerObservation(points, EnergyGrade.GAUGE))
    reasons = list(check_power(run))
    assert [reason.code for reason in reasons] == [ReasonCode.POWER_CHANGED] * found
    assert not list(check_power(replace(run, condition=Condition(protocol=Protocol.ENDURANCE))))


def test_a_few_very_long_windows_change_the_mean_and_not_the_median() -> None:
    noise = [100_000_000 + 300_000 * (index % 5) for index in range(100)]
    for stall_ns, expected in ((0, 0), (200_000_000, 0), (2_000_000_000, 1)):
        series = StepSeries.of(windows([*noise[:50], noise[50] + stall_ns, *noise[51:]]))
        found = list(step_changes([series], 0))
        assert len(found) == expected
    assert found[0].share == pytest.approx(0.165, abs=0.01)
    assert found[0].start_ns == pytest.approx(5.03e9, rel=0.01)


@pytest.mark.parametrize(("stop_ns", "found"), [(0, 0), (9_000_000, 0), (30_000_000, 1)])
def test_a_stop_in_every_window(stop_ns: int, found: int) -> None:
    """All windows are equally slow, but one step of each is not like the others."""
    equal = windows([100_000_000 + 300_000 * (index % 5) + stop_ns for index in range(100)])
    stopped = [window.model_copy(update={"ns_max": 10_000_000 + stop_ns}) for window in equal]
    changes = list(step_changes([StepSeries.of(stopped)], 0))
    assert len(changes) == found
    if found:
        assert changes[0].share == pytest.approx(20 / 130, rel=0.05)


def test_no_recorded_series_of_a_real_phone_counts_as_disturbed() -> None:
    """Also those with rare interruptions: their median hardly notices."""
    recorded = json.loads(RECORDED.read_text())
    judged = 0
    for clocks in ("pinned", "free"):
        for block_ms in recorded[clocks].values():
            series = StepSeries.of(windows([round(10e6 * ms) for ms in block_ms[1:]]))
            judged += len(block_ms) > 15
            assert all(change.is_harmless for change in step_changes([series], 0))
            assert unrest([series]) == 0
    assert judged >= 8


@pytest.mark.parametrize(("share", "harmless"), [(0.2, True), (0.6, False)])
def test_a_slow_stretch_is_weighed_by_what_it_does_to_the_run(share: float, harmless: bool) -> None:
    slow = [round(105e6 * (1 + 0.003 * (index % 5))) for index in range(round(100 * share))]
    rest = [round(100e6 * (1 + 0.003 * (index % 5))) for index in range(100 - len(slow))]
    changes = list(step_changes([StepSeries.of(windows([*slow, *rest]))], 0))
    assert changes
    assert all(change.is_harmless == harmless for change in changes)


def test_the_limit_of_changes_is_learned_from_the_runs_of_the_phone() -> None:
    assert change_limit([0.04] * 5) == CHANGE_MIN  # too few
    assert change_limit([0.0, 0.001, 0.0, 0.02, 0.0, 0.0]) == CHANGE_MIN  # a quiet phone
    assert change_limit([0.03, 0.04, 0.02, 0.5, 0.03, 0.02]) == pytest.approx(0.05)
    assert change_limit([0.2] * 6) == CHANGE_MAX


@pytest.mark.parametrize(("cost", "is_harmless"), [(0.0, True), (0.1, False)])
def test_other_work_that_comes_and_goes_shows_what_it_costs(cost: float, is_harmless: bool) -> None:
    """It takes 20 % of a core for every other second."""
    busy = [index // 10 % 2 for index in range(100)]
    lengths = [round(1e8 * (1 + cost * b + 0.002 * (n % 3))) for n, b in enumerate(busy)]
    series = StepSeries.of(windows(lengths))
    effect = effect_on_steps(series, (series.end_ns, 20.0 * np.cumsum(busy)))
    assert effect is not None
    assert effect.is_harmless == is_harmless
    assert effect.change == pytest.approx(cost / 2, abs=0.01)
    always = effect_on_steps(series, (series.end_ns, 20.0 * np.arange(100)))
    assert always is None or not always.is_harmless  # nothing to compare with
