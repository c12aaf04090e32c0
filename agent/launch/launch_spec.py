"""LaunchSpec: everything that one launch of the runner needs, and the command line it becomes."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.phone.phone_paths import LANE_DIR, PLAN, RUNNER_STDERR, lane_file
from agent.phone.shell_command import ShellCommand
from workloads.catalogue import Case, thread_count
from workloads.protocol.condition import Launch
from workloads.protocol.phone_facts import CoreSet

TRACE_STEPS = 5  # few, because writing the time stamps is part of the traced step


@dataclass(frozen=True)
class LaunchSpec:
    """One launch: which runner, which case, on which cores, for how long, sampling which nodes."""

    runner: str
    case: Case
    cores: CoreSet
    launch: Launch
    nodes: Sequence[str]
    data: str | None = None  # path of its data file on the phone
    kernels: str | None = None  # folder of the OpenCL kernels on the phone
    tuned: str | None = None  # path of the phone's tuning file for the kernels
    period_ms: int = 100  # between sensor readings
    trace_steps: int = TRACE_STEPS
    checkpoint: str | None = None  # path on the phone
    checkpoint_s: float = 0.0

    @property
    def threads(self) -> int:
        """The number of threads: one per core, unless the workload says otherwise."""
        return thread_count(self.case, len(self.cores.cpus))

    @property
    def limit_s(self) -> float:
        """Phone seconds after which the run is stopped; an external program states its own."""
        manifest = self.case.manifest
        requested_s = self.launch.max_seconds
        return 2 * requested_s + 300 if manifest is None else max(manifest.seconds_max, requested_s)

    def command(self) -> ShellCommand:
        """The command line. toybox's taskset takes a bare hex mask, and applies it before exec."""
        launch = self.launch
        words = ["taskset", f"{self.cores.mask:x}", "setsid", self.runner]
        words += ["run", lane_file(PLAN), LANE_DIR]
        words += ["--data", self.data] if self.data else []
        words += ["--kernels", self.kernels] if self.kernels else []
        words += ["--tuned", self.tuned] if self.tuned else []
        if self.checkpoint:
            words += ["--checkpoint", self.checkpoint, "--checkpoint-s", f"{self.checkpoint_s:g}"]
        for name, value in sorted(self.case.options.items()):
            words += [f"--{name}", value]
        words += ["--warmup", str(launch.warmup), "--steps", str(launch.steps)]
        words += ["--seconds", f"{launch.seconds:g}", "--max-seconds", f"{launch.max_seconds:g}"]
        words += ["--window-ms", str(launch.window_ms), "--period-ms", str(self.period_ms)]
        words += ["--trace-steps", str(self.trace_steps)]
        return ShellCommand(words, into=lane_file(RUNNER_STDERR), detached=True)
