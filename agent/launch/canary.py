"""The canary: the same small matrix product before and after a run; it shows changes of the phone.

It needs neither a sensor nor root: a hidden limiter, an aged battery or a daemon that woke up in
between makes it slower, whatever the nodes show.
"""

from dataclasses import dataclass
from functools import cache

from agent.collect.runner_output import RunnerOutput, median_step_ms
from agent.deadline import Deadline
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME, LANE_DIR, OUTPUT
from agent.phone.shell_command import ShellCommand
from workloads.catalogue import bind, lower
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import FarmError
from workloads.protocol.phone_facts import CoreSet

SECONDS, STEPS, WARMUP = 0.25, 10, 3
CHANGE_MAX, DRIFT_MAX = 0.05, 0.08  # normal variation of a phone within and between runs
OLD_WEIGHT = 0.8  # of the record, when a new canary is added to it
_CASE = bind("sgemm-square", {"n": 256})
_DIR = f"{LANE_DIR}/canary"


@dataclass(frozen=True)
class CanaryTimes:
    """Step times in ms before and after a run, and the phone's record with the same clocks."""

    before_ms: float | None = None
    after_ms: float | None = None
    record_ms: float | None = None

    @property
    def change(self) -> float | None:
        """How much longer it took after the run than before, as a fraction."""
        return _relative_change(self.after_ms, self.before_ms)

    @property
    def drift(self) -> float | None:
        """How much longer it took before the run than the phone's record, as a fraction."""
        return _relative_change(self.before_ms, self.record_ms)

    @property
    def is_stable(self) -> bool:
        """Whether these times may be added to the phone's record."""
        return self.change is not None and abs(self.change) <= CHANGE_MAX


NO_CANARY = CanaryTimes()


def canary_record_key(cores: CoreSet, clocks_khz: dict[int, int]) -> str:
    """The key of a phone's record: each set of cores and clocks has its own."""
    clocks = ",".join(f"{policy}:{khz}" for policy, khz in sorted(clocks_khz.items()))
    return f"{cores.mask:x}@{clocks}"


def updated_record(old_ms: float | None, new_ms: float) -> float:
    """The record after one more canary."""
    return new_ms if old_ms is None else OLD_WEIGHT * old_ms + (1 - OLD_WEIGHT) * new_ms


@cache
def _plan_for(cores: int) -> bytes:
    return lower(_CASE, cores)


def run_canary(phone: Phone, runner: str, cores: CoreSet) -> float | None:
    """Run the canary and return its step time in ms.

    Returns None on failure; a failed canary never fails the run.
    """
    plan = _install_plan(phone, cores)
    words = ["taskset", f"{cores.mask:x}", runner, "run", plan, _DIR]
    words += ["--warmup", str(WARMUP), "--steps", str(STEPS), "--seconds", f"{SECONDS:g}"]
    words += ["--max-seconds", "2"]
    commands = [
        ShellCommand(words, into="/dev/null"),
        ShellCommand(["cat", f"{_DIR}/{OUTPUT}"]),
    ]
    deadline = Deadline.after(phone.timeouts.canary_timeout_s)
    process, records = phone.shell_batch_raw(commands, deadline)
    output = RunnerOutput(_CASE.digest)
    try:
        output.feed(records.output)
    except FarmError:
        return None
    if process.status != 0 or output.done is None or not output.windows:
        return None
    return median_step_ms(output.windows)


def run_second_canary(
    phone: Phone, runner: str, cores: CoreSet, clocks_khz: dict[int, int], first_ms: float | None
) -> CanaryTimes:
    """Run the canary after a run that had a first one; stable times update the phone's record."""
    if first_ms is None:
        return NO_CANARY
    key = canary_record_key(cores, clocks_khz)
    record_ms = phone.memory.canary_ms.get(key)
    times = CanaryTimes(first_ms, run_canary(phone, runner, cores), record_ms)
    if times.is_stable:
        phone.remember_canary(key, updated_record(record_ms, first_ms))
    return times


def _install_plan(phone: Phone, cores: CoreSet) -> str:
    """Push the canary's plan unless the phone has it, and return its path."""
    plan = _plan_for(len(cores.cpus))
    path = f"{HOME}/canary-{digest_of_bytes(plan)[:12]}"
    exists, _ = phone.shell_batch(
        [ShellCommand(["test", "-s", path]), ShellCommand(["mkdir", "-p", _DIR])]
    )
    if exists.status != 0:
        phone.push(plan, path)
    return path


def _relative_change(now_ms: float | None, then_ms: float | None) -> float | None:
    return now_ms / then_ms - 1 if now_ms is not None and then_ms else None
