"""The condition of a run: the state that the phone has to be in, and how long the run measures."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from workloads.protocol.base import WireModel, digest_of
from workloads.protocol.phone_facts import check_cores_name, check_freq_name

DEFAULT_REST_TEMP_C = 28.0  # of a phone at rest, until the phone and its room are known


class Protocol(StrEnum):
    """Which question about heat a run answers."""

    COLD = "cold"  # how fast is a phone that starts cool
    SOAKED = "soaked"  # how fast is it once temperature and clocks are steady
    ENDURANCE = "endurance"  # how much speed does it lose over ten minutes


# The metric that answers a protocol's question.
HEADLINES = {
    Protocol.COLD: "step_ms",
    Protocol.SOAKED: "step_ms",
    Protocol.ENDURANCE: "last_minute_step_ms",
}


class Launch(WireModel):
    """How long the runner measures: at least `steps` and `seconds`, at most `max_seconds`."""

    warmup: int
    steps: int
    seconds: float
    max_seconds: float
    window_ms: int


LAUNCHES = {
    # A burst: long enough for a steady median, too short to warm the body of the phone.
    Protocol.COLD: Launch(warmup=5, steps=20, seconds=8, max_seconds=30, window_ms=50),
    # Long enough for temperature and clocks to become steady; only the steady part is measured.
    Protocol.SOAKED: Launch(warmup=5, steps=20, seconds=2400, max_seconds=2400, window_ms=600),
    # Ten minutes without a pause: the speed that is left once the phone is hot.
    Protocol.ENDURANCE: Launch(warmup=5, steps=20, seconds=600, max_seconds=600, window_ms=150),
}


STEPS_MAX_S = 600.0  # a requested number of steps is measured within this time


class Condition(WireModel):
    """What is requested of the phone; the verdict compares it with what was observed."""

    protocol: Protocol = Field(default=Protocol.COLD, description="cold, soaked or endurance")
    cores: Annotated[str, AfterValidator(check_cores_name)] = "big4"
    freq: Annotated[str, AfterValidator(check_freq_name)] = "high"
    start_temp_max_c: float | None = Field(
        default=32.0, ge=0, le=60, description="None: any start temperature"
    )
    start_slope_max_c_per_min: float = Field(default=1.0, gt=0, le=60)
    cool_wait_max_s: float = Field(default=2400.0, ge=0, le=86400)
    battery_min_pct: int = Field(default=20, ge=0, le=100)
    gpu_freq: Annotated[str, AfterValidator(check_freq_name)] | None = None
    thermal_daemons: Literal["stop"] | None = Field(
        default=None,
        description="whether to stop the daemons that protect the phone from heat as well",
    )
    # How long a run measures, where a study did not use the protocol's length.
    warmup_steps: int | None = Field(default=None, ge=0, le=10_000)
    steps_min: int | None = Field(default=None, ge=1, le=1_000_000)
    time_min_s: float | None = Field(default=None, ge=0, le=7200)
    sample_hz: int | None = Field(
        default=None,
        ge=1,
        le=200,
        description="sensor readings per second; None: 10, or 1 in a long run",
    )
    trace_steps: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="steps in which every operation is timed, spread over the run; None: 5",
    )
    resume_s: float | None = Field(
        default=None,
        ge=1,
        le=3600,
        description="seconds between two checkpoints, from which a killed run continues; None: "
        "a killed run is a result",
    )
    token_budget: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="tokens after which the loss of a language model is read",
    )
    target_loss: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="the loss to which time and energy of training are measured",
    )
    too_large: Literal["try"] | None = Field(
        default=None,
        description="whether to try a workload that is predicted not to fit into memory",
    )

    @property
    def digest(self) -> str:
        """The condition's id, the same in every sweep."""
        return digest_of(self.model_dump(mode="json", exclude_none=True))

    @property
    def launch(self) -> Launch:
        """How long a run under this condition measures."""
        default = LAUNCHES[self.protocol]
        seconds = default.seconds if self.time_min_s is None else self.time_min_s
        steps_s = 0.0 if self.steps_min is None else STEPS_MAX_S
        return default.model_copy(
            update={
                "warmup": default.warmup if self.warmup_steps is None else self.warmup_steps,
                "steps": default.steps if self.steps_min is None else self.steps_min,
                "seconds": seconds,
                "max_seconds": max(default.max_seconds, seconds, steps_s),
            }
        )

    @property
    def headline(self) -> str:
        """The metric that answers the protocol's question."""
        return HEADLINES[self.protocol]

    @property
    def label(self) -> str:
        """A short name for tables."""
        return f"{self.protocol} {self.cores} {self.freq}"
