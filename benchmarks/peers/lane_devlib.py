"""devlib's turns at one job: bring plan, look at heat and clocks, run on given cores, fetch, look.

    python lane_devlib.py ADDRESS PLAN RUNNER ROUNDS

One line a job: when it began, when the run began and ended, when it was over; monotonic seconds.
"""

import logging
import sys
import time
from typing import Any

from devlib import AndroidTarget

THERE = "/data/local/tmp"
CLOCKS = [f"/sys/devices/system/cpu/cpufreq/policy{at}/stats/time_in_state" for at in (4, 7)]
ZONES = [f"/sys/class/thermal/thermal_zone{at}/temp" for at in range(4, 8)]


def look(target: Any, paths: list[str]) -> None:
    """Read some nodes, as its users do."""
    for path in paths:
        target.execute(f"cat {path}")


def run(target: Any, runner: str) -> None:
    """The run itself: what everybody's time leaves out."""
    words = f"taskset f0 {runner} run {THERE}/peer-plan {THERE}/peer-out --seconds 8"
    target.execute(words, timeout=60)


def one_job(target: Any, plan: str, runner: str) -> list[float]:
    """One job; its four moments."""
    moments = [time.monotonic()]
    target.push(plan, f"{THERE}/peer-plan")
    target.execute(f"mkdir -p {THERE}/peer-out")
    look(target, ZONES + CLOCKS)
    moments.append(time.monotonic())
    run(target, runner)
    moments.append(time.monotonic())
    target.pull(f"{THERE}/peer-out/out.jsonl", f"{plan}.out")
    look(target, CLOCKS)
    return [*moments, time.monotonic()]


def main() -> None:
    """Take turns."""
    logging.disable(logging.CRITICAL)
    address, plan, runner, rounds = sys.argv[1:]
    target = AndroidTarget(
        connection_settings={"device": address}, load_default_modules=False, connect=False
    )
    target.connect(timeout=60, check_boot_completed=False)
    for _ in range(int(rounds)):
        print(*one_job(target, plan, runner), flush=True)


if __name__ == "__main__":
    main()
