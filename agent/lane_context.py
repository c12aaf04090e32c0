"""The desk of a lane: what it is given beside job and phone, and what it answers with."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent.control.guard import SILENCE_S
from agent.lane_view import LaneView
from agent.run.meter import PowerMeter
from kernels.manifest import RunnerBuild, runner_for
from workloads.messages import Report


@dataclass
class Desk:
    """What a lane is given beside job and phone."""

    host: str
    state_dir: Path
    cancel: threading.Event = field(default_factory=threading.Event)
    view: LaneView = field(default_factory=LaneView)
    runner_for: Callable[[str], RunnerBuild] = runner_for
    silence_s: float = SILENCE_S
    canary: bool = True
    meter: PowerMeter | None = None
    files: Path | None = None  # of foreign programs, by digest; None: beside the state

    @property
    def shelf(self) -> Path:
        """Where the files of foreign programs lie."""
        return self.files or self.state_dir / "files"


@dataclass(frozen=True)
class Outcome:
    """What became of a job: the report, and the telemetry that it names."""

    report: Report
    telemetry: bytes | None = None
