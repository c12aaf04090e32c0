"""What was observed, where it comes from, and whether it may count.

No simulated number may pass for a measured one: a metric cannot exist without its provenance,
and nothing is derived across classes.
"""

from enum import StrEnum
from typing import Self

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


class Metric(Noun):
    """One figure of one run."""

    name: str
    value: float
    unit: str
    provenance: Provenance


# name -> (unit, family, what it says); the one list of figures that a report may carry
METRICS: dict[str, tuple[str, str, str]] = {
    "step_ms": ("ms", "time", "median time of one training step"),
    "step_p90_ms": ("ms", "time", "time that nine of ten windows stay under"),
    "samples_per_s": ("1/s", "time", "training samples a second, over the whole run"),
    "gflops": ("GFLOP/s", "time", "arithmetic of the plan divided by the median step time"),
    "first_minute_step_ms": ("ms", "time", "median step time of the run's first minute"),
    "last_minute_step_ms": ("ms", "time", "median step time of the run's last minute"),
    "start_temp_c": ("°C", "heat", "hottest CPU zone when the run began"),
    "peak_temp_c": ("°C", "heat", "hottest CPU zone during the run"),
    "clock_held_share": ("", "clock", "share of the run that the clocks stayed as asked"),
    "energy_j": ("J", "energy", "battery energy of the run, from its gauge"),
    "energy_per_step_mj": ("mJ", "energy", "that energy divided by the steps"),
    "peak_rss_mb": ("MB", "time", "most memory that the runner held"),
}


class Standing(StrEnum):
    """Whether a run may count."""

    VALID = "valid"
    SUSPECT = "suspect"
    VOID = "void"


class Verdict(Noun):
    """The judgement between what was asked (Condition) and what was so (Readings)."""

    standing: Standing
    reasons: tuple[str, ...] = ()
