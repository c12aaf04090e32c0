"""One job with devlib: push the plan, read sensors and clocks, run on given cores, pull, read.

    python lane_devlib.py ADDRESS PLAN RUNNER ROUNDS

Prints one line per job: its start, start and end of the run, and its end, in monotonic seconds.
"""

import logging
import sys
import time
from typing import Any

from devlib import AndroidTarget

PHONE_FOLDER = "/data/local/tmp"
CLOCKS = [
    f"/sys/devices/system/cpu/cpufreq/policy{number}/stats/time_in_state" for number in (4, 7)
]
ZONES = [f"/sys/class/thermal/thermal_zone{number}/temp" for number in range(4, 8)]


def read_nodes(target: Any, paths: list[str]) -> None:
    """Read nodes one by one, as users of devlib do."""
    for path in paths:
        target.execute(f"cat {path}")


def run(target: Any, runner: str) -> None:
    """Execute the run, which is not part of any overhead."""
    command = (
        f"taskset f0 {runner} run {PHONE_FOLDER}/peer-plan {PHONE_FOLDER}/peer-out --seconds 8"
    )
    target.execute(command, timeout=60)


def run_job(target: Any, plan: str, runner: str) -> list[float]:
    """Run one job; return its four times."""
    times = [time.monotonic()]
    target.push(plan, f"{PHONE_FOLDER}/peer-plan")
    target.execute(f"mkdir -p {PHONE_FOLDER}/peer-out")
    read_nodes(target, ZONES + CLOCKS)
    times.append(time.monotonic())
    run(target, runner)
    times.append(time.monotonic())
    target.pull(f"{PHONE_FOLDER}/peer-out/out.jsonl", f"{plan}.out")
    read_nodes(target, CLOCKS)
    return [*times, time.monotonic()]


def main() -> None:
    """Run the requested number of jobs."""
    logging.disable(logging.CRITICAL)
    address, plan, runner, rounds = sys.argv[1:]
    target = AndroidTarget(
        connection_settings={"device": address}, load_default_modules=False, connect=False
    )
    target.connect(timeout=60, check_boot_completed=False)
    for _ in range(int(rounds)):
        print(*run_job(target, plan, runner), flush=True)


if __name__ == "__main__":
    main()
