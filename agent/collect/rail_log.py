"""The rail log: the phone's power statistics, read once per second beside a run.

The sampler of the runner reads files, and these statistics are behind a command; so a small loop on
the phone calls it, on cores that are not measured. The loop ends with the runner.
"""

from agent.deadline import Deadline
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import RAIL_LOG, lane_file
from agent.phone.power_stats import (
    ROUNDING_SHARE_MAX,
    RailTotals,
    add_up_rails,
    parse_readings_log,
    reading_script,
)
from agent.phone.shell_command import ShellCommand
from agent.phone.shell_link import MIB
from workloads.protocol.phone_facts import CoreSet

PERIOD_S = 1.0
READINGS_MAX = 600  # per run
LOG_BYTES_MAX = 8 * MIB
REST_MIN_NS = 3 * 10**9


def read_rails(phone: Phone) -> RailTotals | None:
    """Read the totals of all rails now; None where the phone has no power statistics."""
    hal = phone.facts.power_stats
    if hal is None:
        return None
    result = phone.shell(["sh", "-c", reading_script(hal)])
    return next(iter(parse_readings_log(result.text)), None)


def start_rail_log(phone: Phone, pid: int | None, cores: CoreSet, max_s: float) -> None:
    """Start the loop that reads the totals until the process `pid` ends."""
    hal = phone.facts.power_stats
    if hal is None or pid is None:
        return
    period_s = max(PERIOD_S, max_s / READINGS_MAX)
    # Some kernels reuse a pid soon, so the number of readings is limited as well.
    alive = f"[ $n -lt {2 * READINGS_MAX} ] && kill -0 {pid} 2>/dev/null"
    loop = f"n=0; while {alive}; do {reading_script(hal)}; n=$((n+1)); sleep {period_s:.2f}; done"
    allowed = phone.facts.shell_cpus or [cpu for part in phone.facts.clusters for cpu in part.cpus]
    others = sum(1 << cpu for cpu in {*allowed} - {*cores.cpus})
    words = ["taskset", f"{others:x}"] if others else []
    words += ["setsid", "sh", "-c", loop]
    phone.shell_batch([ShellCommand(words, into=lane_file(RAIL_LOG), detached=True)])


def fetch_rail_log(phone: Phone) -> list[RailTotals]:
    """Fetch what the loop has read; empty where it did not run."""
    if phone.facts.power_stats is None:
        return []
    deadline = Deadline.after(phone.timeouts.transfer_timeout_s)
    cat = ShellCommand(["cat", lane_file(RAIL_LOG)])
    reply = phone.shell_batch_raw([cat], deadline, LOG_BYTES_MAX)[0]
    if reply.status != 0:
        return []
    return parse_readings_log(reply.output.decode(errors="replace"))


def resting_rails_w(before: RailTotals | None, after: RailTotals | None) -> float | None:
    """The mean power of all rails between two readings of a resting phone; None if too close."""
    if before is None or after is None or after.t_ns - before.t_ns < REST_MIN_NS:
        return None
    total, rounding_j = add_up_rails([before, after])
    if not total.t_ns or rounding_j > ROUNDING_SHARE_MAX * total.total[-1]:
        return None
    return total.total[-1] * 1e9 / (after.t_ns - before.t_ns)
