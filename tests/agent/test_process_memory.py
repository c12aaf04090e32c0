"""Memory of a run: its own, that of files, swapped, on the GPU; and who killed it."""

from agent.collect.process_memory import NO_MEMORY, ProcessMemory, parse_process_memory
from tests.agent.lane_harness import LaneHarness, assert_valid
from workloads.protocol.faults import FaultKind

ROLLUP = "0-7f [rollup]\nRss:  10240 kB\nPss: 9000 kB\nAnonymous:  8192 kB\nSwap:  1024 kB\n"
GPU = "Memory snapshot for GPU 0:\nGlobal total: 90000000\nProc 71 total: 4194304\n"


def test_the_parts_of_a_process_are_told_apart() -> None:
    assert parse_process_memory(71, ROLLUP, "1048576\n", "") == ProcessMemory(8.0, 2.0, 1.0, 1.0)
    assert parse_process_memory(71, ROLLUP, "", GPU) == ProcessMemory(8.0, 2.0, 1.0, 4.0)
    assert parse_process_memory(7, "cat: denied", "cat: no such file", GPU) == NO_MEMORY


def test_a_run_reports_its_own_memory_and_who_killed_it(lane_harness: LaneHarness) -> None:
    report = lane_harness.run_attempt()
    assert_valid(report)
    values = {metric.name: metric.value for metric in report.metrics}
    assert values["anonymous_mb"] + values["file_mb"] <= values["peak_rss_mb"] + 0.1
    assert values["own_swap_mb"] == 0
    lane_harness.inject("low_memory", at="run@50%")
    fault = lane_harness.run_attempt(2).fault
    assert fault is not None
    assert fault.kind is FaultKind.KILLED
    assert "low-memory killer ended the runner: Kill 'runner" in fault.text
