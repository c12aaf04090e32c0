"""LaneContext: all that a lane needs besides job and phone; LaneResult: what it returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent.judge.run_observation import RunObservation
from agent.lane_status import LaneStatus
from agent.phone.canary_reference import CanarySeries
from agent.phone.phone_waits import Cancellation
from agent.timeouts import DEFAULT_TIMEOUTS, Timeouts
from kernels.runner_builds import RunnerBuild, runner_for
from workloads.protocol.messages import Report


@dataclass
class LaneContext:
    """The surroundings of a lane on its host."""

    host: str
    state_dir: Path
    cancel: Cancellation = field(default_factory=Cancellation)
    status: LaneStatus = field(default_factory=LaneStatus)
    runner_for: Callable[[str], RunnerBuild] = runner_for
    canary: bool = True
    relearn: CanarySeries | None = None  # how the references of the canaries are learned again
    learns_rest: bool = False  # the phone comes to rest before the run, and is remembered so
    files: Path | None = None  # of external programs, by digest; None: in state_dir
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def files_dir(self) -> Path:
        """The folder of data files and external programs."""
        return self.files or self.state_dir / "files"


@dataclass(frozen=True)
class LaneResult:
    """The report of an attempt, the telemetry that it names, and the observation behind it."""

    report: Report
    telemetry: bytes | None = None
    observation: RunObservation | None = None
