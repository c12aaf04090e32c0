"""The condition of a run: the state that the phone has to be in, and how long the run measures."""

import math
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from workloads.protocol.base import WireModel, digest_of
from workloads.protocol.file_keys import Seconds, Written, key
from workloads.protocol.phone_facts import canonical_freq_name, check_cores_name

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
SHORT_RUN_S = 60.0
SHORT_RUN_HZ, LONG_RUN_HZ = 10, 1
READINGS_MAX = 60_000  # per run: a slow link transfers this many within a minute


Cores = Annotated[
    str,
    AfterValidator(check_cores_name),
    Written(values="`bigN`, `littleN`, `allN`, `prime` or `mask:HEX`"),
]
CLOCKS = "`high`, `mid`, `low`, a fraction, `1785600kHz`, `free` or `fixed`"
Clock = Annotated[str, AfterValidator(canonical_freq_name), Written(values=CLOCKS)]
REST: Literal["rest"] = "rest"
ABOVE_REST_K = 3.0
StartTemp = Annotated[float, Field(ge=0, le=60)] | Literal["rest"] | None


class Condition(WireModel):
    """What is requested of the phone; the verdict compares it with what was observed.

    Where no default is given, the protocol decides.
    """

    protocol: Protocol = key(Protocol.COLD, "start temperature and length of a run")
    cores: Cores = key(
        "big4",
        "N cores of a kind. `big` counts every core that is not little, from the larger cluster "
        "first",
    )
    freq: Clock = key(
        "high",
        "CPU clock: the step nearest to 100 %, 65 %, 40 % or a fraction of the highest clock, or "
        "an exact step. `free` leaves the governor alone. `fixed` uses Android's fixed-performance "
        "mode",
    )
    start_temp_max_c: StartTemp = key(
        REST,
        "highest CPU temperature at the start, in °C. `rest` is relative to the phone's own "
        "temperature at rest, see `start_above_rest_k`. `any` starts at once",
        words={REST: REST, "any": None},
    )
    start_above_rest_k: float | None = key(
        None,
        "with `start_temp_max_c: rest`: how much warmer than at rest the CPU zones may be at the "
        "start, in K; usually 3",
        gt=0,
        le=40,
    )
    start_slope_max_c_per_min: float = key(
        1.0, "largest slope of the temperature at the start, in °C per minute", gt=0, le=60
    )
    cool_wait_max_s: Seconds = key(2400.0, "longest wait for the start temperature", ge=0, le=86400)
    battery_min_pct: int = key(20, "lowest battery level at the start, in percent", ge=0, le=100)
    gpu_freq: Clock | None = key(None, "GPU clock, as `freq`")
    thermal_daemons: Literal["stop"] | None = key(
        None,
        "whether the daemons that protect the phone against heat stop (root)",
        words={"keep": None, "stop": "stop"},
    )
    # How long a run measures, where a study did not use the protocol's length.
    warmup_steps: int | None = key(None, "steps before the measurement; usually 5", ge=0, le=10_000)
    steps_min: int | None = key(None, "fewest measured steps; usually 20", ge=1, le=1_000_000)
    time_min_s: Seconds | None = key(
        None, "shortest measurement; usually 8s, 40m or 10m", ge=0, le=7200
    )
    sample_hz: int | None = key(
        None,
        "sensor readings per second; usually 10, in a long run 1. A run keeps at most 60,000 "
        "readings: one that is known to be longer is read less often, and of one that takes longer "
        "than expected every second reading is kept. `readings_per_s` is the real rate",
        ge=1,
        le=200,
    )
    trace_steps: int | None = key(
        None,
        "steps in which every operation is timed, spread over the run; usually 5. More of them "
        "resolve the power of shorter operations",
        ge=1,
        le=1000,
    )
    resume_s: Seconds | None = key(
        None,
        "how often a run writes a checkpoint. If the phone, a restart, an empty battery or heat "
        "kills it, its next attempt continues from the last one, with bit-identical results. "
        "Otherwise a killed run is a result",
        ge=1,
        le=3600,
    )
    token_budget: int | None = key(
        None,
        "tokens after which the loss of a language model is read (`loss_at_budget`). It does not "
        "make the run longer: set `steps_min` or `time_min`",
        ge=1,
        le=10**12,
    )
    target_loss: float | None = key(
        None,
        "the loss for `time_to_loss_s` and `energy_to_loss_j`. It does not make the run longer",
        gt=0,
        le=100,
    )
    too_large: Literal["try"] | None = key(
        None,
        "whether to try a model that is predicted not to fit into memory",
        words={"refuse": None, "try": "try"},
    )

    @property
    def digest(self) -> str:
        """The condition's id, the same in every sweep."""
        return digest_of(self.model_dump(mode="json", exclude_none=True))

    def start_limit_c(self, rest_c: float | None) -> float | None:
        """The highest start temperature on a phone with this temperature at rest; None: any."""
        if self.start_temp_max_c != REST:
            return self.start_temp_max_c
        return None if rest_c is None else rest_c + self.above_rest_k

    @property
    def above_rest_k(self) -> float:
        """How much warmer than at rest a phone may be at the start."""
        return ABOVE_REST_K if self.start_above_rest_k is None else self.start_above_rest_k

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
    def sample_period_ms(self) -> int:
        """The time between two sensor readings: as requested, but longer in a very long run."""
        expected_s = self.launch.seconds
        hz = self.sample_hz or (SHORT_RUN_HZ if expected_s <= SHORT_RUN_S else LONG_RUN_HZ)
        return math.ceil(max(1000 / hz, 1000 * expected_s / READINGS_MAX))

    @property
    def headline(self) -> str:
        """The metric that answers the protocol's question."""
        return HEADLINES[self.protocol]

    @property
    def label(self) -> str:
        """A short name for tables."""
        return f"{self.protocol} {self.cores} {self.freq}"
