"""Activity: cores, GPU and memory from what was sampled, as phones print it."""

import pytest

from agent.phone.gpu import KGSL
from agent.run.activity import (
    MEMINFO,
    OWN_STAT,
    STAT,
    busy_course,
    core_use,
    gpu_node,
    gpu_util_pct,
    inside_pct,
    parse_moment,
    swapped_mb,
)
from agent.run.telemetry import Readings
from workloads.phone import Gpu

S = 10**9


def readings(path: str, *values: str | int | None) -> Readings:
    return Readings((path,), [row * S for row in range(len(values))], {path: list(values)})


def test_cores_are_read_and_nonsense_is_no_core() -> None:
    assert parse_moment("0:10/100 7:5/90") == {0: (10, 100), 7: (5, 90)}
    assert parse_moment("0:10 x:1/2 1:-1/2 2:1/2/3") == {}
    assert parse_moment(None) == {}


def test_how_busy_each_core_was_and_how_long_it_slept() -> None:
    """Core 0 works all the time; core 1 works in one second of four, core 2 comes late."""
    stat = readings(
        STAT,
        "0:0/0 1:0/0",
        "0:100/100 1:0/100",
        "0:200/200 1:50/200 2:900/1000",
        "0:300/300 1:50/300 2:900/1100",
        "0:400/400 1:50/400 2:925/1200",
    )
    found = [(core.cpu, core.util_pct, core.idle_share) for core in core_use(stat, (0, 4 * S))]
    assert found == [(0, 100.0, 0.0), (1, 12.5, 0.75), (2, 12.5, 0.5)]
    assert [core.util_pct for core in core_use(stat, (2 * S, 3 * S))] == [100.0, 0.0, 0.0]
    assert core_use(stat, (9 * S, 10 * S)) == ()


def test_counters_that_go_back_say_nothing() -> None:
    assert (
        core_use(readings(STAT, "0:100/100", "0:50/120", "0:60/140"), (0, 9 * S))[0].util_pct == 50
    )


def test_busy_seconds_add_up_over_the_cores_of_a_run() -> None:
    course = busy_course(readings(STAT, "0:0/0 1:0/0", "0:100/100", "0:200/200 1:100/200"), (0, 1))
    assert course is not None
    assert (list(course.t_ns), list(course.total)) == ([0, 2 * S], [0.0, 3.0])
    assert busy_course(readings(STAT, None, None), (0,)) is None


@pytest.mark.parametrize(
    ("folder", "node", "said"),
    [
        (f"{KGSL}/devfreq", f"{KGSL}/gpu_busy_percentage", ("0 %", "40 %", "80 %")),
        ("/sys/class/devfreq/m", "/sys/class/devfreq/m/load", ("0@1Hz", "40@1Hz", "80@9Hz")),
    ],
)
def test_the_gpu_tells_how_busy_it_is(folder: str, node: str, said: tuple[str, ...]) -> None:
    gpu = Gpu(name="g", folder=folder, ladder_khz=(1,))
    assert gpu_node(gpu) == node
    assert gpu_util_pct(readings(node, *said, None, "x"), node, (0, 9 * S)) == pytest.approx(40)
    assert gpu_util_pct(Readings(), node, (0, 9 * S)) is None
    assert gpu_node(None) is None


def test_memory_that_went_to_swap() -> None:
    rows = [f"MemTotal: 99 kB;SwapTotal: 4096 kB;SwapFree: {free} kB" for free in (4000, 976, 2000)]
    assert swapped_mb(readings(MEMINFO, *rows), before_kb=96) == pytest.approx(3024 / 1024)
    assert swapped_mb(readings(MEMINFO, rows[0]), before_kb=200) == 0  # somebody else's came back
    assert swapped_mb(readings(MEMINFO, "MemTotal: 1 kB"), before_kb=96) is None
    assert swapped_mb(readings(MEMINFO, *rows), before_kb=None) is None


def test_what_others_had_of_the_cores_is_what_the_runner_had_not() -> None:
    """Two cores, both busy for two seconds; the runner had three of these four seconds."""
    given = readings(STAT, "0:0/0 1:0/0", "0:100/100 1:100/100", "0:200/200 1:200/200")
    given.columns[OWN_STAT] = [
        f"7 (an (odd) name) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0" for ticks in (10, 160, 310)
    ]
    assert inside_pct(given, (0, 9 * S), (0, 1)) == pytest.approx(25.0)
    assert inside_pct(given, (0, 9 * S), (0, 2)) is None, "core 2 was never seen"
    given.columns[OWN_STAT] = ["7 (short)", None, "nonsense"]
    assert inside_pct(given, (0, 9 * S), (0, 1)) is None
