"""What can be seen of a lane from outside: written by the lane, told by the heartbeat."""

from dataclasses import dataclass, field

from agent.run.runner import Progress


@dataclass
class LaneView:
    """What the heartbeat tells of a lane; written by the lane, read by anyone."""

    stage: str = ""
    progress: float | None = None
    temp_c: float | None = None
    battery_pct: int | None = None
    ready_s: tuple[float, float, float] | None = None
    left_s: float | None = None
    steps: int | None = None
    locked_khz: dict[int, int] = field(default_factory=dict)
    clocks_khz: dict[int, int] = field(default_factory=dict)
    power_w: float | None = None

    def begin(self, stage: str) -> None:
        """A stage begins; what was so during another is over."""
        self.stage = stage
        self.progress = self.left_s = self.steps = self.power_w = self.ready_s = None
        self.clocks_khz = {}
        if stage == "restore":
            self.locked_khz = {}

    def follow(self, now: Progress) -> None:
        """The run has come so far."""
        pulse = now.pulse
        self.progress, self.left_s, self.steps = now.share, now.left_s, now.steps
        self.temp_c = self.temp_c if pulse.temp_c is None else pulse.temp_c
        self.clocks_khz, self.power_w = pulse.clocks_khz, pulse.power_w

    def end(self) -> None:
        """The job is over."""
        self.begin("")
        self.locked_khz = {}
