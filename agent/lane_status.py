"""LaneStatus: what a heartbeat shows of a lane; the lane writes it, any thread reads it."""

from dataclasses import dataclass, field

from agent.launch.runner_process import RunProgress
from agent.phone.phone_snapshot import PhoneSnapshot
from workloads.protocol.stage import Stage


@dataclass
class LaneStatus:
    """Stage, progress and latest sensor values of a lane."""

    stage: Stage | None = None
    progress: float | None = None
    temp_c: float | None = None
    battery_pct: int | None = None
    cool_in_s: tuple[float, float, float] | None = None
    remaining_s: float | None = None
    steps: int | None = None
    locked_khz: dict[int, int] = field(default_factory=dict)
    clocks_khz: dict[int, int] = field(default_factory=dict)
    power_w: float | None = None

    def begin(self, stage: Stage | None) -> None:
        """Enter a stage; values that belong to another stage are cleared."""
        self.stage = stage
        self.progress = self.remaining_s = self.steps = self.power_w = self.cool_in_s = None
        self.clocks_khz = {}
        if stage is Stage.RESTORE:
            self.locked_khz = {}

    def show_snapshot(
        self, snapshot: PhoneSnapshot, cool_in_s: tuple[float, float, float] | None = None
    ) -> None:
        """Show the state of a waiting phone."""
        self.temp_c = snapshot.temp_c
        if snapshot.battery_pct is not None:  # a phone that hides it is asked only while idle
            self.battery_pct = snapshot.battery_pct
        self.cool_in_s = cool_in_s

    def show_progress(self, progress: RunProgress) -> None:
        """Show how far the run is."""
        live = progress.live
        self.progress, self.remaining_s = progress.share, progress.remaining_s
        self.steps = progress.steps
        self.temp_c = self.temp_c if live.temp_c is None else live.temp_c
        self.clocks_khz, self.power_w = live.clocks_khz, live.power_w

    def end(self) -> None:
        """The job is over."""
        self.begin(None)
        self.locked_khz = {}
