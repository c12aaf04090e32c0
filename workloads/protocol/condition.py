"""Condition: the state a phone must hold for a number to count, and how long a run looks."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from workloads.noun import Noun, digest_of
from workloads.phone import check_cores_name, check_freq_name


class Protocol(StrEnum):
    """Which question about heat a run answers."""

    COLD = "cold"
    SOAKED = "soaked"
    ENDURANCE = "endurance"


# the figure that answers a protocol's question
HEADLINES = {
    Protocol.COLD: "step_ms",
    Protocol.SOAKED: "step_ms",
    Protocol.ENDURANCE: "last_minute_step_ms",
}


class Launch(Noun):
    """How long the runner measures: at least so many steps and seconds, at most so many."""

    warmup: int
    steps: int
    seconds: float
    max_seconds: float
    window_ms: int


LAUNCHES = {
    # A burst: long enough for a steady median, too short to warm the body of the phone.
    Protocol.COLD: Launch(warmup=5, steps=20, seconds=8, max_seconds=30, window_ms=50),
    # So long that heat and clocks go nowhere any more; only what comes after that is measured.
    Protocol.SOAKED: Launch(warmup=5, steps=20, seconds=2400, max_seconds=2400, window_ms=600),
    # Ten minutes without a pause: what is left when the heat has arrived.
    Protocol.ENDURANCE: Launch(warmup=5, steps=20, seconds=600, max_seconds=600, window_ms=150),
}


STEPS_MAX_S = 600.0  # who asks for so many steps gets them, if it does not take longer


class Condition(Noun):
    """What is asked of the phone; the verdict compares it with what was so."""

    protocol: Protocol = Field(default=Protocol.COLD, description="cold, soaked or endurance")
    cores: Annotated[str, AfterValidator(check_cores_name)] = "big4"
    freq: Annotated[str, AfterValidator(check_freq_name)] = "high"
    start_temp_max_c: float | None = Field(
        default=32.0, ge=0, le=60, description="None asks for no start temperature at all"
    )
    start_slope_max_c_per_min: float = Field(default=1.0, gt=0, le=60)
    cool_wait_max_s: float = Field(default=2400.0, ge=0, le=86400)
    battery_min_pct: int = Field(default=20, ge=0, le=100)
    gpu_freq: Annotated[str, AfterValidator(check_freq_name)] | None = None
    thermal_daemons: Literal["stop"] | None = Field(
        default=None, description="stop also the daemons that guard the phone against heat"
    )
    # How long a run looks, where the protocol's own length is not what a study did.
    warmup_steps: int | None = Field(default=None, ge=0, le=10_000)
    steps_min: int | None = Field(default=None, ge=1, le=1_000_000)
    time_min_s: float | None = Field(default=None, ge=0, le=7200)
    sample_hz: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="as often as a run's length allows; None: 10, long 1",
    )
    too_large: Literal["try"] | None = Field(
        default=None, description="try what is predicted not to fit, instead of refusing it"
    )

    @property
    def digest(self) -> str:
        """The condition's identity: same condition, same digest, in every sweep."""
        return digest_of(self.model_dump(mode="json", exclude_none=True))

    @property
    def launch(self) -> Launch:
        """How long a run under this condition measures."""
        usual = LAUNCHES[self.protocol]
        seconds = usual.seconds if self.time_min_s is None else self.time_min_s
        patience = 0.0 if self.steps_min is None else STEPS_MAX_S
        return usual.model_copy(
            update={
                "warmup": usual.warmup if self.warmup_steps is None else self.warmup_steps,
                "steps": usual.steps if self.steps_min is None else self.steps_min,
                "seconds": seconds,
                "max_seconds": max(usual.max_seconds, seconds, patience),
            }
        )

    @property
    def headline(self) -> str:
        """The metric that answers what this condition asks."""
        return HEADLINES[self.protocol]

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.protocol} {self.cores} {self.freq}"
