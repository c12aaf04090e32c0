"""What was observed, where it comes from, and whether it may count.

No simulated number may pass for a measured one: a metric cannot exist without its provenance,
and nothing is derived across classes.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from workloads.noun import Noun


class Source(StrEnum):
    """Where a number was made."""

    PHONE = "phone"
    HOST = "host"
    SIMULATED = "simulated"


class Model(StrEnum):
    """How far a simulated number can be trusted."""

    FITTED = "fitted"
    EXTRAPOLATED = "extrapolated"


class Provenance(Noun):
    """The class of a number; simulated ones name their model, fitted ones its error."""

    source: Source
    model: Model | None = None
    error_rel: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _only_simulations_have_models(self) -> Self:
        if (self.source is Source.SIMULATED) != (self.model is not None):
            raise ValueError("a model is named for simulated numbers, and only for those")
        if (self.model is Model.FITTED) != (self.error_rel is not None):
            raise ValueError("a fitted model, and only a fitted one, states its error")
        return self

    def __str__(self) -> str:
        if self.model is None:
            return self.source.value
        if self.error_rel is None:
            return f"{self.source.value} ({self.model.value})"
        return f"{self.source.value} ({self.model.value}, ±{self.error_rel:.0%})"


class Provenances(Noun):
    """Where a phone's figures come from, per family; None means that it offers none."""

    time: Provenance | None
    clock: Provenance | None
    heat: Provenance | None
    energy: Provenance | None

    def of_family(self, family: str) -> Provenance | None:
        """Look a family up by the name that the metric catalogue uses."""
        found: Provenance | None = getattr(self, family)
        return found


COARSE_GRADE = "coarse"  # the gauge was too slow, or is only guessed


class Metric(Noun):
    """One figure of one run."""

    name: str
    value: float
    unit: str
    provenance: Provenance
    grade: str = Field(default="", max_length=16, description="of an energy: how it was found")

    @property
    def ranks(self) -> bool:
        """Whether it may say that one phone is better than another."""
        return self.grade != COARSE_GRADE


_WHICH = re.compile(r"[A-Za-z0-9_]{1,40}")
Family = Literal["time", "clock", "heat", "energy"]


@dataclass(frozen=True)
class MetricKind:
    """One row of the table of metrics: what a figure says and how it is made.

    The family decides the provenance: a phone that offers no such family has no such figure.
    """

    unit: str
    family: Family
    text: str
    formula: str
    higher_is_better: bool = False
    per: str = ""  # what there is one of each for, such as cores; its number follows the name


def _time(unit: str, text: str, formula: str, **more: Any) -> MetricKind:
    return MetricKind(unit, "time", text, formula, **more)


def _energy(unit: str, text: str, formula: str, **more: Any) -> MetricKind:
    return MetricKind(unit, "energy", text, formula, **more)


def _held(what: str) -> MetricKind:
    return _time("MB", f"memory taken for {what} before the first step", "bytes / 2^20")


# The one list of figures that a report may carry. t is the time of a step, N the number of steps
# in the timed part, T its length; sums go over all windows, so no step is left out.
METRICS: dict[str, MetricKind] = {
    "step_ms": _time("ms", "median time of one step", "median over steps of t"),
    "step_p90_ms": _time("ms", "time that nine of ten windows stay under", "90 % quantile of t"),
    "load_ms": _time("ms", "bringing the next batch, a step", "sum of load / N"),
    "forward_ms": _time("ms", "forward pass and loss, a step", "sum of forward / N"),
    "backward_ms": _time("ms", "backward pass, a step", "sum of backward / N"),
    "update_ms": _time("ms", "the optimizer's pass, a step", "sum of update / N"),
    "samples_per_s": _time(
        "1/s",
        "training samples a second, over the whole run",
        "samples a step * N / sum of t",
        higher_is_better=True,
    ),
    "gflops": _time(
        "GFLOP/s",
        "arithmetic of the plan divided by the median step time",
        "FLOPs a step / median of t; 2 n^3 / t for a product",
        higher_is_better=True,
    ),
    "soak_s": _time("s", "time until heat and clocks were steady", "start of the steady part"),
    "sustained_share": _time(
        "",
        "speed of the run's last minute, as a share of its first minute's",
        "first_minute_step_ms / last_minute_step_ms",
        higher_is_better=True,
    ),
    "first_minute_step_ms": _time(
        "ms", "median step time of the run's first minute", "median of t, first 60 s"
    ),
    "last_minute_step_ms": _time(
        "ms", "median step time of the run's last minute", "median of t, last 60 s"
    ),
    "copy_share": _time(
        "",
        "share of a step that only moves data",
        "(load + traced operations that copy or gather) / step; on OpenCL, sum of copy / sum of t",
    ),
    "copy_ms": _time(
        "ms",
        "moving data to and from the OpenCL device, a step",
        "events: start to end of copies / N",
    ),
    "queue_ms": _time(
        "ms",
        "commands that stood in the device's queue with nothing running before them, a step",
        "events, later of queued and last end, to start / N",
    ),
    "compute_ms": _time(
        "ms", "kernels running on the OpenCL device, a step", "events: start to end of kernels / N"
    ),
    "build_ms": _time(
        "ms", "building the OpenCL kernels, before the first step", "sum of clBuildProgram"
    ),
    "step_similarity": _time(
        "",
        "how alike the traced steps are, operation by operation; 1 is the same step over and over",
        "mean over steps of sum(min(d, m)) / sum(max(d, m)), d an operation's time, m its median",
        higher_is_better=True,
    ),
    "cpu_util_pct": _time(
        "%", "how busy the run's cores were, on average", "100 * busy ticks / all ticks"
    ),
    "core_util_pct": _time(
        "%", "how busy each core was", "100 * busy ticks / all ticks", per="core"
    ),
    "core_idle_share": _time(
        "", "share of time in which a core did nothing at all", "time at 0 % / T", per="core"
    ),
    "gpu_util_pct": _time("%", "how busy the GPU was, on average", "mean over time of its busy %"),
    "sampler_share": _time(
        "", "what sampling took of one core", "processor time of the sampler / T"
    ),
    "sampler_late_ms": _time(
        "ms", "how late 99 of 100 readings were at most", "99 % quantile of lateness"
    ),
    "loss_first": _time("", "loss at first", "mean over the first round through the data"),
    "loss_last": _time("", "loss at last", "mean over the last round through the data"),
    "accuracy_first": _time(
        "", "accuracy at the first evaluation", "right answers / all", higher_is_better=True
    ),
    "accuracy_last": _time(
        "", "accuracy at the last evaluation", "right answers / all", higher_is_better=True
    ),
    "peak_rss_mb": _time("MB", "most memory that the runner held", "highest resident set / 2^20"),
    "parameter_mb": _held("parameters"),
    "gradient_mb": _held("gradients"),
    "state_mb": _held("the optimizer's state"),
    "activation_mb": _held("what the backward pass needs"),
    "workspace_mb": _held("the operations' own use"),
    "input_mb": _held("a batch"),
    "dataset_mb": _held("the data set"),
    "swapped_mb": _time(
        "MB", "memory that went to swap during the run", "highest - earlier of SwapTotal - SwapFree"
    ),
    "time_to_throttle_s": MetricKind(
        "s",
        "clock",
        "time until a clock fell below what the run began with",
        "first of three readings below 97 % of the clock of the first 10 s",
        higher_is_better=True,
    ),
    "clock_held_share": MetricKind(
        "",
        "clock",
        "share of the run that the clocks stayed as asked",
        "time at the asked clock / T, worst policy",
        higher_is_better=True,
    ),
    "start_temp_c": MetricKind("°C", "heat", "hottest CPU zone when the run began", "one look"),
    "peak_temp_c": MetricKind("°C", "heat", "hottest CPU zone during the run", "highest reading"),
    "energy_j": _energy(
        "J",
        "energy of the whole phone in the run, from battery and port",
        "trapezoids of battery current * voltage + port current * voltage",
    ),
    "energy_net_j": _energy(
        "J", "that energy less what the phone draws at rest", "energy - idle power * T"
    ),
    "idle_power_w": _energy(
        "W", "what the phone drew at rest in the same state", "median before the run"
    ),
    "energy_per_step_mj": _energy("mJ", "that energy divided by the steps", "energy / N"),
    "energy_per_sample_mj": _energy(
        "mJ", "that energy divided by the samples", "energy / (N * samples a step)"
    ),
    "power_w": _energy("W", "mean power of the run", "energy / T"),
    "rail_power_w": _energy(
        "W", "mean power of a part of the board", "energy of its meter / T", per="rail"
    ),
    "steps_per_charge": _energy(
        "",
        "steps that a full battery would last for",
        "stated capacity * mean voltage / energy of a step",
        higher_is_better=True,
    ),
}


def kind_of(name: str) -> MetricKind | None:
    """The row of a figure; `core_util_pct.4` is core 4's."""
    base, dot, which = name.partition(".")
    kind = METRICS.get(base)
    if kind is None or bool(dot) != bool(kind.per) or (dot and not _WHICH.fullmatch(which)):
        return None
    return kind


def metrics_table() -> str:
    """The table of metrics as Markdown."""
    rows = [
        f"| `{name}{'.N' if kind.per else ''}` | {kind.unit} | {kind.family} | {kind.text}"
        f"{f', by {kind.per}' if kind.per else ''} | {kind.formula} |"
        for name, kind in METRICS.items()
    ]
    return "\n".join(
        ("| metric | unit | family | meaning | formula |", "|---|---|---|---|---|", *rows)
    )


class Standing(StrEnum):
    """Whether a run may count."""

    VALID = "valid"
    SUSPECT = "suspect"
    VOID = "void"


class Verdict(Noun):
    """The judgement between what was asked (Condition) and what was so (Readings)."""

    standing: Standing
    reasons: tuple[str, ...] = ()
    finding: bool = Field(
        default=False, description="void for what ran, not for the phone: again would be the same"
    )
