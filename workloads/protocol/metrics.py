"""The metrics of a run, each with its provenance: measured on a phone or a host, or simulated.

A metric cannot exist without its provenance, and no metric is derived from values of different
provenance, so a simulated number is never taken for a measured one.
"""

import functools
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from workloads.protocol.base import WireModel


class Source(StrEnum):
    """Where a number comes from."""

    PHONE = "phone"  # measured on a physical phone
    HOST = "host"  # measured on a computer that acts as a phone
    SIMULATED = "simulated"  # computed by a virtual phone


class SimulationModel(StrEnum):
    """How a simulated number was computed."""

    FITTED = "fitted"  # to published measurements; its error is known
    EXTRAPOLATED = "extrapolated"  # beyond them; its error is not known
    UNCALIBRATED = "uncalibrated"  # nothing of the phone or its SoC was ever measured


class Provenance(WireModel):
    """The source of a number; a simulated one names its model, a fitted one its relative error."""

    source: Source
    model: SimulationModel | None = None
    error_rel: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_model_and_error(self) -> Self:
        if (self.source is Source.SIMULATED) != (self.model is not None):
            raise ValueError("simulated numbers, and only those, name a model")
        if (self.model is SimulationModel.FITTED) != (self.error_rel is not None):
            raise ValueError("fitted numbers, and only those, state an error")
        return self

    @property
    def error_unknown(self) -> bool:
        """Return whether the number is simulated without a known error."""
        return self.model is not None and self.error_rel is None

    def __str__(self) -> str:
        if self.model is None:
            return self.source.value
        if self.error_rel is None:
            return f"{self.source.value} ({self.model.value}, error unknown)"
        return f"{self.source.value} ({self.model.value}, ±{self.error_rel:.0%})"


class Provenances(WireModel):
    """The provenance of a phone's metrics by family; None: it has no metric of that family."""

    time: Provenance | None
    clock: Provenance | None
    heat: Provenance | None
    energy: Provenance | None

    def for_family(self, family: str) -> Provenance | None:
        """Return the provenance of a family; what the program itself counts is as its times."""
        provenance: Provenance | None = getattr(self, family if family in SENSORS else "time")
        return provenance

    @property
    def sources(self) -> frozenset[Source]:
        """The sources of all its numbers."""
        stated = (self.time, self.clock, self.heat, self.energy)
        return frozenset(item.source for item in stated if item is not None)

    @property
    def is_computer(self) -> bool:
        """Whether the phone is really a computer."""
        return self.time is not None and self.time.source is Source.HOST


SENSORS = ("clock", "heat", "energy")  # families that a phone may lack
COARSE_GRADE = "coarse"  # the fuel gauge is slow, or its sign and unit are guessed


class Metric(WireModel):
    """One metric of one run."""

    name: str
    value: float
    unit: str
    provenance: Provenance
    grade: str = Field(
        default="", max_length=16, description="of an energy: the quality of its source"
    )
    coverage: float | None = Field(
        default=None, ge=0, le=1, description="share of the run that its readings cover"
    )

    @property
    def rankable(self) -> bool:
        """Whether it may be used to rank phones."""
        return self.grade != COARSE_GRADE


PROGRAMS_MAX = 256  # of one run


class KernelProgram(WireModel):
    """OpenCL kernels as a run built them: what its kernel times are times of."""

    files: str = Field(max_length=64, description="of kernels/opencl, built after common.cl")
    options: str = Field(max_length=256)
    digest: str = Field(pattern=r"^[0-9a-f]{1,16}$", description="of the source text")

    def __str__(self) -> str:
        return f"{self.files} {self.options} {self.digest}"


_INSTANCE = re.compile(r"[A-Za-z0-9_]{1,40}")
Family = Literal["time", "memory", "learning", "clock", "heat", "energy"]


@dataclass(frozen=True)
class MetricKind:
    """One row of the table of metrics: meaning and formula.

    The family decides the provenance: a phone without this family has no such metric.
    """

    unit: str
    family: Family
    text: str
    formula: str
    higher_is_better: bool = False
    is_share: bool = False  # of a whole: between 0 and 1
    per: str = ""  # set if there is one value per core or per rail; its number follows the name


def _time(unit: str, text: str, formula: str, **more: Any) -> MetricKind:
    return MetricKind(unit, "time", text, formula, **more)


def _energy(unit: str, text: str, formula: str, **more: Any) -> MetricKind:
    return MetricKind(unit, "energy", text, formula, **more)


def _memory(what: str) -> MetricKind:
    text = f"memory for {what}, allocated before the first step"
    return MetricKind("MB", "memory", text, "bytes / 2^20")


# All metrics that a report may carry. t is the time of a step, N the number of steps in the timed
# part, T its length. Sums are over all windows, so no step is left out.
METRICS: dict[str, MetricKind] = {
    "step_ms": _time("ms", "median time of one step", "median over steps of t"),
    "step_p90_ms": _time(
        "ms", "step time that 90 % of the windows do not exceed", "90 % quantile of t"
    ),
    "load_ms": _time("ms", "time to load the next batch, per step", "sum of load / N"),
    "forward_ms": _time("ms", "time of forward pass and loss, per step", "sum of forward / N"),
    "backward_ms": _time("ms", "time of the backward pass, per step", "sum of backward / N"),
    "update_ms": _time("ms", "time of the optimizer's update, per step", "sum of update / N"),
    "samples_per_s": _time(
        "1/s",
        "training samples per second over the whole run",
        "samples per step * N / sum of t",
        higher_is_better=True,
    ),
    "tokens_per_s": _time(
        "1/s",
        "tokens that a language model predicts per second over the whole run",
        "tokens per step * N / sum of t",
        higher_is_better=True,
    ),
    "first_step_ms": _time(
        "ms",
        "time from the start of the runner to the end of its first step, warm-up included; absent "
        "in a run that continued from a checkpoint",
        "end of the first step - first record",
    ),
    "resume_lost_s": _time(
        "s",
        "time lost by the last kill of a run that continued from a checkpoint",
        "continued - last checkpoint; after a restart by the phone's wall clock, absent if it was "
        "set back",
    ),
    "tokens_trained": _time(
        "",
        "tokens that a language model predicted since the first timed step, of all attempts",
        "tokens per step * last step",
        higher_is_better=True,
    ),
    "time_to_loss_s": _time(
        "s",
        "time from the first timed step until the loss is at most the condition's target_loss; "
        "absent if it is not reached, and in a run that continued from a checkpoint",
        "end of the first window with mean loss over the last 16 steps <= target_loss",
    ),
    "gflops": _time(
        "GFLOP/s",
        "floating-point operations of a step divided by the median step time",
        "FLOPs per step / median of t; for a matrix product 2 n^3 / t",
        higher_is_better=True,
    ),
    "time_to_steady_s": _time(
        "s", "time until temperature and clocks are steady", "start of the steady part"
    ),
    "sustained_speed_ratio": _time(
        "",
        "speed in the last minute divided by the speed in the first minute; absent in a run that "
        "continued from a checkpoint",
        "first_minute_step_ms / last_minute_step_ms",
        higher_is_better=True,
    ),
    "first_minute_step_ms": _time(
        "ms", "median step time in the first minute of the run", "median of t, first 60 s"
    ),
    "last_minute_step_ms": _time(
        "ms", "median step time in the last minute of the run", "median of t, last 60 s"
    ),
    "copy_share": _time(
        "",
        "share of a step that is spent moving data",
        "(load + traced operations that copy or gather) / step; on OpenCL, sum of copy / sum of t",
        is_share=True,
    ),
    "copy_ms": _time(
        "ms",
        "time of copies to and from the OpenCL device, per step",
        "events: start to end of copies / N",
    ),
    "queue_ms": _time(
        "ms",
        "time in which commands are queued while the OpenCL device is idle, per step",
        "events: from the later of enqueued and previous end, to start / N",
    ),
    "compute_ms": _time(
        "ms",
        "time of kernels on the OpenCL device, per step",
        "events: start to end of kernels / N",
    ),
    "build_ms": _time(
        "ms", "time to build the OpenCL kernels before the first step", "sum of clBuildProgram"
    ),
    "canary_arithmetic_ms": _time(
        "ms", "time of a small matrix product before the run", "median over steps of t"
    ),
    "canary_memory_ms": _time(
        "ms", "time of a vector times a matrix of 64 MB before the run", "median over steps of t"
    ),
    "canary_gpu_ms": _time(
        "ms", "time of a matrix product on the GPU before a run there", "median over steps of t"
    ),
    "step_similarity": _time(
        "",
        "similarity of the traced steps, operation by operation; 1 if all are equal",
        "mean over steps of sum(min(d, m)) / sum(max(d, m)); d: an operation's time, m: its median",
        higher_is_better=True,
    ),
    "util_similarity": _time(
        "",
        "similarity of the utilisation of the run's cores over the run; 1 if it never changes",
        "mean over parts of at least 0.5 s and one step of min(u, m) / max(u, m); m: the median",
        higher_is_better=True,
    ),
    "memory_similarity": _time(
        "",
        "similarity of the memory in use over the run; 1 if it never changes",
        "as util_similarity",
        higher_is_better=True,
    ),
    "time_prediction_error": _time(
        "",
        "relative error of the run's time, predicted from its first 10 steps",
        "abs(N * mean of the first steps / sum of t - 1), if N is at least 5 times as many",
    ),
    "load_share": _time(
        "", "share of a step that waits for its batch", "load_ms / mean of t", is_share=True
    ),
    "cpu_gpu_correlation": _time(
        "",
        "correlation of the load of cores and GPU; depends on the sampling interval",
        "Pearson's r over the intervals between readings",
    ),
    "cpu_util_pct": _time(
        "%", "mean utilisation of the run's cores", "100 * busy ticks / all ticks"
    ),
    "core_util_pct": _time(
        "%", "utilisation of a core", "100 * busy ticks / all ticks", per="core"
    ),
    "core_idle_share": _time(
        "",
        "share of time in which a core is completely idle; depends on the sampling interval",
        "intervals between readings at 0 % / all intervals",
        per="core",
        is_share=True,
    ),
    "gpu_util_pct": _time("%", "mean utilisation of the GPU", "mean over time of its busy %"),
    "sampler_share": _time(
        "",
        "share of one core that the sampler uses",
        "CPU time of the sampler / T",
        is_share=True,
    ),
    "sampler_late_ms": _time(
        "ms", "delay that 99 % of the sensor readings do not exceed", "99 % quantile of the delay"
    ),
    "readings_per_s": _time(
        "1/s", "sensor readings per second that were kept", "readings / time between first and last"
    ),
    "loss_first": MetricKind("", "learning", "loss at the start", "mean over the first epoch"),
    "loss_last": MetricKind("", "learning", "loss at the end", "mean over the last epoch"),
    "loss_at_budget": MetricKind(
        "",
        "learning",
        "loss after as many tokens as the condition's token_budget; absent if it is not reached",
        "mean over the last 16 steps, at the end of the first window with that many tokens",
    ),
    "accuracy_first": MetricKind(
        "",
        "learning",
        "accuracy at the first evaluation; absent in a run that continued from a checkpoint",
        "correct samples / all samples",
        higher_is_better=True,
        is_share=True,
    ),
    "accuracy_last": MetricKind(
        "",
        "learning",
        "accuracy at the last evaluation",
        "correct samples / all samples",
        higher_is_better=True,
        is_share=True,
    ),
    "peak_rss_mb": MetricKind(
        "MB", "memory", "peak memory of the runner", "highest resident set / 2^20"
    ),
    "memory_share": MetricKind(
        "",
        "memory",
        "peak memory of the runner as a share of what the phone had available at its start",
        "peak_rss_mb / MemAvailable; from 1 on, the phone kills processes",
    ),
    "parameter_mb": _memory("parameters"),
    "gradient_mb": _memory("gradients"),
    "state_mb": _memory("the optimizer's state"),
    "activation_mb": _memory("activations that the backward pass needs"),
    "workspace_mb": _memory("temporary data of operations"),
    "input_mb": _memory("one batch"),
    "dataset_mb": _memory("the data set"),
    "anonymous_mb": MetricKind(
        "MB",
        "memory",
        "memory of the runner that no file backs",
        "Anonymous in smaps_rollup",
    ),
    "file_mb": MetricKind(
        "MB",
        "memory",
        "memory of the runner that a file backs, which the phone may drop",
        "Rss - Anonymous in smaps_rollup",
    ),
    "own_swap_mb": MetricKind(
        "MB", "memory", "memory of the runner that is swapped out", "Swap in smaps_rollup"
    ),
    "gpu_memory_mb": MetricKind(
        "MB",
        "memory",
        "memory of the runner on the GPU, which is in no other metric of memory",
        "gpumem_mapped of kgsl, or `dumpsys gpu --gpumem` / 2^20",
    ),
    "swapped_mb": MetricKind(
        "MB",
        "memory",
        "memory that was swapped out during the run",
        "maximum - start of (SwapTotal - SwapFree)",
    ),
    "time_to_throttle_s": MetricKind(
        "s",
        "clock",
        "time until a clock drops below its value at the start",
        "first of three consecutive readings below 97 % of the clock in the first 10 s",
        higher_is_better=True,
    ),
    "pinned_clock_share": MetricKind(
        "",
        "clock",
        "share of the run in which the clocks stay at the requested value",
        "time at the requested clock / T, of the worst policy",
        higher_is_better=True,
        is_share=True,
    ),
    "start_temp_c": MetricKind(
        "°C", "heat", "hottest CPU zone at the start of the run", "one reading"
    ),
    "start_above_rest_k": MetricKind(
        "K",
        "heat",
        "hottest CPU zone at the start of the run, above its temperature at rest",
        "start_temp_c - temperature at rest",
    ),
    "peak_temp_c": MetricKind("°C", "heat", "hottest CPU zone during the run", "maximum reading"),
    "energy_j": _energy(
        "J",
        "energy of the whole phone during the run, from battery and charging port; "
        "of a board, from its input rail; with grade rapl, of the processor package alone; "
        "with grade rails, of the phone's metered rails; absent in a run that continued from a "
        "checkpoint",
        "trapezoidal sum of battery current * voltage + port current * voltage; "
        "or of the input rail's power; or the increase of the counters",
    ),
    "energy_net_j": _energy(
        "J", "energy_j minus the energy of the idle phone", "energy - idle power * T"
    ),
    "idle_power_w": _energy(
        "W", "power of the idle phone in the same state", "median before the run"
    ),
    "energy_per_step_mj": _energy("mJ", "energy per step", "energy / N"),
    "energy_per_sample_mj": _energy("mJ", "energy per sample", "energy / (N * samples per step)"),
    "energy_per_token_mj": _energy(
        "mJ", "energy per predicted token", "energy / (N * tokens per step)"
    ),
    "energy_to_loss_j": _energy(
        "J", "energy until the loss is at most target_loss", "energy within time_to_loss_s"
    ),
    "power_similarity": _energy(
        "",
        "similarity of the phone's power over the run; 1 if it never changes",
        "as util_similarity",
        higher_is_better=True,
    ),
    "energy_prediction_error": _energy(
        "",
        "relative error of the run's energy, predicted from its first 10 steps",
        "abs(N * energy per step of the first steps / energy - 1)",
    ),
    "power_w": _energy("W", "mean power of the run", "energy / T"),
    "rail_power_w": _energy(
        "W", "mean power of a power rail", "energy of its meter / T", per="rail"
    ),
    "rail_energy_share": _energy(
        "",
        "share of the phone's energy that its metered rails account for, where both are read",
        "sum over rails that no other rail feeds / energy",
        higher_is_better=True,
        is_share=True,
    ),
    "steps_per_charge": _energy(
        "",
        "steps per full battery charge",
        "nominal capacity * mean voltage / energy per step",
        higher_is_better=True,
    ),
}


@functools.lru_cache(4096)
def metric_kind(name: str) -> MetricKind | None:
    """Return the row of a metric; `core_util_pct.4` is that of core 4."""
    base, dot, instance = name.partition(".")
    kind = METRICS.get(base)
    if kind is None or bool(dot) != bool(kind.per) or (dot and not _INSTANCE.fullmatch(instance)):
        return None
    return kind


def metrics_table() -> str:
    """Return the table of metrics as Markdown."""
    rows = [
        f"| `{name}{'.N' if kind.per else ''}` | {kind.unit} | {kind.family} | {kind.text}"
        f"{f', per {kind.per}' if kind.per else ''} | {kind.formula} |"
        for name, kind in METRICS.items()
    ]
    return "\n".join(
        ("| metric | unit | family | meaning | formula |", "|---|---|---|---|---|", *rows)
    )
