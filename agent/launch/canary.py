"""Canaries: the same small products before and after a run; they show changes of the phone.

They need neither a sensor nor root: a hidden limiter, an aged battery, a daemon that woke up in
between, other work on the GPU or a slower memory bus makes them slower, whatever the nodes show.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from agent.collect.runner_output import RunnerOutput, StepWindow, median_step_ms
from agent.deadline import Deadline
from agent.phone.canary_reference import (
    COMPUTER_SPREAD,
    QUICK_SERIES,
    SECONDS,
    SECONDS_MAX,
    USUAL_SPREAD,
    CanaryReference,
    CanarySeries,
    CanaryTimes,
    choose_seconds,
    learn_reference,
)
from agent.phone.kernel_nodes import GPU_POLICY
from agent.phone.phone_driver import Phone
from agent.phone.phone_paths import HOME, LANE_DIR, OUTPUT
from agent.phone.phone_waits import HEARTBEAT_COMMAND
from agent.phone.shell_command import ShellCommand
from agent.phone.shell_link import ShellReply
from workloads.catalogue import Case, bind, cost_of, lower
from workloads.protocol.base import digest_of_bytes
from workloads.protocol.faults import FarmError
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.phone_facts import CanaryKind, CoreSet


@dataclass(frozen=True)
class _Program:
    """What a canary executes."""

    case: Case
    warmup: int
    steps: int


_PROGRAMS = {
    CanaryKind.ARITHMETIC: _Program(bind("sgemm-square", {"n": 256}), 3, 10),
    # 64 MB: no phone has caches of that size.
    CanaryKind.MEMORY: _Program(bind("sgemm", {"m": 1, "n": 4096, "k": 4096}), 1, 3),
    # So long that cores and clocks of the CPU, which launches it, do not matter.
    CanaryKind.GPU: _Program(bind("sgemm-square", {"n": 1024}, backend="opencl"), 1, 20),
}
_DIR = f"{LANE_DIR}/canary"
BEFORE_AND_AFTER = 2
REPEATS_MAX = 2  # of a doubtful canary


class CanaryRounds:
    """The canaries of one run: learns missing references, then compares before and after.

    `kernels` is the folder of the OpenCL kernels; None: the GPU needs no canary.
    """

    def __init__(
        self,
        phone: Phone,
        runner: str,
        cores: CoreSet,
        applied: AppliedCondition,
        kernels: str | None = None,
    ) -> None:
        self._phone, self._runner, self._cores = phone, runner, cores
        self._applied, self._kernels = applied, kernels
        self._kinds = [kind for kind in CanaryKind if kernels or kind is not CanaryKind.GPU]
        self._times: dict[CanaryKind, CanaryTimes] = {}
        self._learned: set[CanaryKind] = set()
        self._paths: Mapping[CanaryKind, str] = {}

    def run_first(self, relearn: CanarySeries | None = None) -> None:
        """Learn the references that are missing, or all again, and run the canaries."""
        self._paths = _install_plans(self._phone, self._cores, self._kinds)
        known = {} if relearn else self._phone.memory.canaries
        missing = [kind for kind in self._kinds if self._key(kind) not in known]
        if missing:
            self._learn(missing, relearn)
        before_ms = self._run(self._kinds)
        held = self._applied
        first = {
            kind: CanaryTimes(
                before_ms.get(kind),
                reference=self._phone.memory.canaries.get(self._key(kind)),
                is_new=kind in self._learned,
                is_held=bool(held.gpu_khz if kind is CanaryKind.GPU else held.clocks_khz),
            )
            for kind in self._kinds
        }
        self._times = self._repeat_doubtful(first)

    def run_second(self, accumulate: bool) -> dict[CanaryKind, CanaryTimes]:
        """Run the canaries after a run that had them before; add stable times to the sums."""
        if not self._times:
            return {}
        after_ms = self._run(self._kinds)
        second = {
            kind: replace(times, after_ms=after_ms.get(kind)) for kind, times in self._times.items()
        }
        complete = {kind: times for kind, times in second.items() if times.after_ms is not None}
        found = second | self._repeat_doubtful(complete)
        for kind, times in found.items():
            is_counted = accumulate and times.is_held and times.is_stable
            if is_counted and times.reference is not None:
                found[kind] = times.with_this_run()
                self._remember(kind, found[kind].reference)
        self._times = found
        return found

    def learn_from_run(self) -> None:
        """Let the references learn from this run, which nothing else disturbed."""
        for kind, times in self._times.items():
            reference = self._phone.memory.canaries.get(self._key(kind))
            found = [ms for ms in (times.before_ms, times.after_ms) if ms is not None]
            if reference is not None and len(found) == BEFORE_AND_AFTER:
                self._remember(kind, reference.learned_from(found))

    def _repeat_doubtful(
        self, found: Mapping[CanaryKind, CanaryTimes]
    ) -> dict[CanaryKind, CanaryTimes]:
        """Measure the canaries again that are slightly beyond their limits."""
        known = dict(found)
        for _ in range(REPEATS_MAX):
            doubtful = [kind for kind, times in known.items() if times.is_doubtful]
            if not doubtful:
                break
            again_ms = self._run(doubtful)
            known |= {kind: known[kind].measured_again(ms) for kind, ms in again_ms.items()}
        return known

    def _key(self, kind: CanaryKind) -> str:
        runner, held = self._phone.facts.runner, self._applied
        if kind is CanaryKind.GPU:
            clocks_khz = {GPU_POLICY: held.gpu_khz} if held.gpu_khz else {}
            return reference_key(kind, runner, 0, clocks_khz)
        return reference_key(kind, runner, self._cores.mask, held.clocks_khz)

    def _learn(self, kinds: Collection[CanaryKind], relearn: CanarySeries | None) -> None:
        """Learn references; commissioning also makes canaries as long as they have to be."""
        commission = self._phone.facts.commission
        known = {} if commission is None or relearn else commission.canary_seconds
        seconds = {kind: known.get(kind, SECONDS) for kind in kinds}
        count, longest_s = relearn or QUICK_SERIES
        self._run(seconds, seconds)  # the first canaries only warm up
        learned = self._learn_series(seconds, count)
        while relearn and (longer := _longer(learned, longest_s)):
            learned |= self._learn_series(longer, count)
        for kind, reference in learned.items():
            self._remember(kind, reference)
        self._learned = set(learned)

    def _learn_series(
        self, seconds: Mapping[CanaryKind, float], count: int
    ) -> dict[CanaryKind, CanaryReference]:
        """Learn from a series of canaries."""
        series: dict[CanaryKind, list[float]] = {kind: [] for kind in seconds}
        for _ in range(count):
            for kind, time_ms in self._run(seconds, seconds).items():
                series[kind].append(time_ms)
        provenance = self._phone.facts.provenance
        is_computer = provenance is not None and provenance.is_computer
        usual = COMPUTER_SPREAD if is_computer else USUAL_SPREAD
        learned = {
            kind: learn_reference(series[kind], length, usual) for kind, length in seconds.items()
        }
        return {kind: reference for kind, reference in learned.items() if reference is not None}

    def _remember(self, kind: CanaryKind, reference: CanaryReference | None) -> None:
        if reference is not None:
            self._phone.remember_canary(self._key(kind), reference)

    def _run(
        self, kinds: Collection[CanaryKind], seconds: Mapping[CanaryKind, float] | None = None
    ) -> dict[CanaryKind, float]:
        """Run canaries in one round trip and return their step times in ms.

        One that failed is left out; the verdict has a reason for it.
        """
        chosen = [kind for kind in self._kinds if kind in kinds]
        commands = []
        for kind in chosen:
            program, reference = _PROGRAMS[kind], self._phone.memory.canaries.get(self._key(kind))
            length = seconds[kind] if seconds else reference.seconds if reference else SECONDS
            words = ["taskset", f"{self._cores.mask:x}", self._runner, "run", self._paths[kind]]
            words += [_DIR, "--warmup", str(program.warmup), "--steps", str(program.steps)]
            words += ["--seconds", f"{length:g}", "--max-seconds", f"{SECONDS_MAX:g}"]
            words += ["--kernels", self._kernels or ""] if kind is CanaryKind.GPU else []
            commands.append(ShellCommand(words, into="/dev/null"))
            commands.append(ShellCommand(["cat", f"{_DIR}/{OUTPUT}"]))
        deadline = Deadline.after(self._phone.timeouts.canary_timeout_s)
        _, *replies = self._phone.shell_batch_raw([HEARTBEAT_COMMAND, *commands], deadline)
        windows = {
            kind: _windows(kind, *replies[2 * index : 2 * index + 2])
            for index, kind in enumerate(chosen)
        }
        fastest_ns = min(
            (window.ns_min for window in windows.get(CanaryKind.ARITHMETIC, ())), default=0
        )
        if fastest_ns > 0:
            cost = cost_of(_PROGRAMS[CanaryKind.ARITHMETIC].case)
            rate = cost.flops / fastest_ns * 1e9
            self._phone.remember_core_flops(rate / len(self._cores.cpus))
        return {kind: median_step_ms(found) for kind, found in windows.items() if found}


def _longer(
    learned: Mapping[CanaryKind, CanaryReference], longest_s: float
) -> dict[CanaryKind, float]:
    """The new lengths of the canaries that have to be longer."""
    chosen = {kind: choose_seconds(reference, longest_s) for kind, reference in learned.items()}
    return {kind: length for kind, length in chosen.items() if length > learned[kind].seconds}


def reference_key(kind: CanaryKind, runner: str, mask: int, clocks_khz: Mapping[int, int]) -> str:
    """The key of a reference: each build of the runner, set of cores and clocks has its own."""
    clocks = ",".join(f"{policy}:{khz}" for policy, khz in sorted(clocks_khz.items()))
    return f"{kind} {runner[:8]} {mask:x}@{clocks}"


def _windows(kind: CanaryKind, process: ShellReply, records: ShellReply) -> Sequence[StepWindow]:
    """What a canary measured; nothing if it failed."""
    output = RunnerOutput(_PROGRAMS[kind].case.digest)
    try:
        output.feed(records.output)
    except FarmError:
        return ()
    return output.windows if process.status == 0 and output.done is not None else ()


@cache
def _plan_for(kind: CanaryKind, cores: int) -> bytes:
    return lower(_PROGRAMS[kind].case, cores)


def _install_plans(
    phone: Phone, cores: CoreSet, kinds: Collection[CanaryKind]
) -> dict[CanaryKind, str]:
    """Push the plans of the canaries unless the phone has them, and return their paths."""
    plans = {kind: _plan_for(kind, len(cores.cpus)) for kind in kinds}
    paths = {kind: f"{HOME}/canary-{digest_of_bytes(plan)[:12]}" for kind, plan in plans.items()}
    commands = [ShellCommand(["test", "-s", path]) for path in paths.values()]
    exist = phone.shell_batch([*commands, ShellCommand(["mkdir", "-p", _DIR])])
    for kind, exists in zip(plans, exist, strict=False):
        if exists.status != 0:
            phone.push(plans[kind], paths[kind])
    return paths
