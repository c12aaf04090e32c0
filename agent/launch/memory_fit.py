"""Checks whether a workload's plan fits into the phone's memory, before a run and after a crash.

A plan that is predicted not to fit is refused, unless the condition asks to try it. A crash counts
as out of memory if hardly any memory was left in the last readings before it.
"""

import json
import re

from agent.collect.cpu_usage import parse_meminfo
from kernels.plan_memory import memory_of_plan
from workloads.protocol.faults import TooLarge
from workloads.protocol.memory_outcome import ENGINE_OVERHEAD_MB, RUNNER_MB

USABLE_SHARE = 0.9  # of MemAvailable: the kernel's estimate is optimistic
EXHAUSTED_SHARE = 0.1  # of MemTotal; phones begin to kill processes at about this much

_MEMORY = re.compile(r'"(\d{1,12}) (\d{1,12}) \d{1,12} \d{1,12}"')  # see the runner's contract


def planned_mb(plan: bytes) -> float | None:
    """The memory that a plan needs, by its header; None if the header is invalid."""
    try:
        header = json.loads(plan.split(b"\n", 2)[1])
        return sum(map(int, header["memory"].values())) / 2**20
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def check_fits(plan: bytes, meminfo: str) -> None:
    """Refuse a plan that is predicted to be too large for the phone's available memory."""
    plan_mb = planned_mb(plan)
    available_mb = parse_meminfo(meminfo.splitlines()).get("MemAvailable", 0) / 1024
    if plan_mb is None or not available_mb:
        return
    memory = memory_of_plan(plan)
    needed_mb = (
        plan_mb + ENGINE_OVERHEAD_MB if memory is None else sum(memory.values()) / 2**20 + RUNNER_MB
    )
    if needed_mb > USABLE_SHARE * available_mb:
        raise TooLarge(
            f"predicted not to fit: the run needs {needed_mb:,.0f} MB, and {USABLE_SHARE:.0%} of "
            f"the available {available_mb:,.0f} MB can be used; use a smaller batch, or set "
            "too_large: try to run it anyway"
        )


def was_out_of_memory(readings: str) -> bool:
    """Whether hardly any memory was left in the last of some readings."""
    rows = _MEMORY.findall(readings)
    return bool(rows) and int(rows[-1][1]) < EXHAUSTED_SHARE * int(rows[-1][0])
