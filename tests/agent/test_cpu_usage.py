"""Usage of cores, GPU and memory from sampled nodes, as phones print them."""

import pytest

from agent.collect.cpu_usage import (
    MEMINFO,
    OWN_STAT,
    STAT,
    busy_series,
    core_ticks,
    core_usage,
    gpu_load_node,
    gpu_util_pct,
    own_cores_shared_pct,
    swapped_mb,
)
from agent.collect.readings import Readings
from agent.phone.gpu_probe import KGSL
from workloads.protocol.phone_facts import Gpu

S = 10**9


def readings(path: str, *values: str | int | None) -> Readings:
    return Readings((path,), [row * S for row in range(len(values))], {path: list(values)})


def test_cores_are_parsed_and_nonsense_is_skipped() -> None:
    texts = ("0:10/100 7:5/90", "0:10 x:1/2 1:-1/2 2:1/2/3", None, 7, f"0:1/{10**18 - 1}")
    ticks = core_ticks(readings(STAT, *texts))
    rows = [column.tolist() for column in ticks]
    assert rows == [[0, 0, 4], [0, 7, 0], [10, 5, 1], [100, 90, 10**18 - 1]]
    assert core_ticks(readings(STAT, "")).row.size == 0


def test_busy_and_idle_shares_of_each_core() -> None:
    """Core 0 works all the time, core 1 in one second of four; core 2 appears late."""
    stat = readings(
        STAT,
        "0:0/0 1:0/0",
        "0:100/100 1:0/100",
        "0:200/200 1:50/200 2:900/1000",
        "0:300/300 1:50/300 2:900/1100",
        "0:400/400 1:50/400 2:925/1200",
    )
    usage = [(core.cpu, core.util_pct, core.idle_share) for core in core_usage(stat)]
    assert usage == [(0, 100.0, 0.0), (1, 12.5, 0.75), (2, 12.5, 0.5)]
    assert [core.util_pct for core in core_usage(stat.within((2 * S, 3 * S)))] == [100.0, 0.0, 0.0]
    assert core_usage(stat.within((9 * S, 10 * S))) == ()


def test_decreasing_counters_are_ignored() -> None:
    (core,) = core_usage(readings(STAT, "0:100/100", "0:50/120", "0:60/140"))
    assert core.util_pct == 50


def test_busy_seconds_add_up_over_the_cores_of_a_run() -> None:
    busy = busy_series(readings(STAT, "0:0/0 1:0/0", "0:100/100", "0:200/200 1:100/200"), (0, 1))
    assert busy is not None
    assert (list(busy.t_ns), list(busy.total)) == ([0, 2 * S], [0.0, 3.0])
    assert busy_series(readings(STAT, None, None), (0,)) is None


@pytest.mark.parametrize(
    ("folder", "node", "texts"),
    [
        (f"{KGSL}/devfreq", f"{KGSL}/gpu_busy_percentage", ("0 %", "40 %", "80 %")),
        ("/sys/class/devfreq/m", "/sys/class/devfreq/m/load", ("0@1Hz", "40@1Hz", "80@9Hz")),
    ],
)
def test_the_load_of_the_gpu_is_parsed(folder: str, node: str, texts: tuple[str, ...]) -> None:
    gpu = Gpu(name="g", folder=folder, ladder_khz=(1,))
    assert gpu_load_node(gpu) == node
    assert gpu_util_pct(readings(node, *texts, None, "x"), node) == pytest.approx(40)
    assert gpu_util_pct(Readings(), node) is None
    assert gpu_load_node(None) is None


def test_swapped_memory_is_counted() -> None:
    rows = [f"99 50 4096 {free}" for free in (4000, 976, 2000)]
    assert swapped_mb(readings(MEMINFO, *rows), before_kb=96) == pytest.approx(3024 / 1024)
    assert (
        swapped_mb(readings(MEMINFO, rows[0]), before_kb=200) == 0
    )  # other processes' pages came back
    assert swapped_mb(readings(MEMINFO, "99 50"), before_kb=96) is None
    assert swapped_mb(readings(MEMINFO, *rows), before_kb=None) is None


def test_the_share_of_other_processes_is_what_the_runner_did_not_use() -> None:
    """Two cores are busy for two seconds each; the runner had three of these four seconds."""
    stat = ("0:0/0 1:0/0", "0:100/100 1:100/100", "0:200/200 1:200/200")
    sampled = readings(STAT, *stat)
    sampled.columns[OWN_STAT] = [10, 160, 310]
    assert own_cores_shared_pct(sampled, (0, 1)) == pytest.approx(25.0)
    assert own_cores_shared_pct(sampled, (0, 2)) is None, "core 2 was never read"
    nonsense = readings(STAT, *stat)
    nonsense.columns[OWN_STAT] = ["7 (short)", None, "1"]
    assert own_cores_shared_pct(nonsense, (0, 1)) is None
