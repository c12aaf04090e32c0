"""Runs, trials and metric values that comparisons, selections and studies are computed from.

Values with different sources, control levels or energy grades are never combined silently: a number
made of several carries the provenance of its weakest part, and mixing is refused unless requested.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from orchestrator.planning.states import RunState
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.protocol.faults import Fault, InvalidRequest
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.messages import AppliedCondition
from workloads.protocol.metrics import (
    KernelProgram,
    Metric,
    Provenance,
    SimulationModel,
    Source,
    metric_kind,
)
from workloads.protocol.phone_facts import ControlLevel, PhoneFacts
from workloads.protocol.verdict import Validity, Verdict
from workloads.text import TextEnum

NOTHING_APPLIED = AppliedCondition()  # a report from before a condition was applied


class NothingMatches(InvalidRequest):
    """No stored trial matches the request."""


class NothingToCompare(InvalidRequest):
    """The request matches no valid run."""


class IncompatibleSources(InvalidRequest):
    """The values have different sources, control levels or energy grades."""


@dataclass(frozen=True)
class MeasuredRun:
    """An accepted report, as comparisons and exports read it."""

    sweep: str
    trial: str
    repeat: int
    attempt: int
    block: int
    position: int
    phone: str
    host: str
    facts: PhoneFacts
    case: Case
    condition: Condition
    control: ControlLevel | None
    verdict: Verdict  # with what its siblings show
    metrics: dict[str, Metric]
    started_at: datetime
    ended_at: datetime
    boot_id: str | None = None
    telemetry: str | None = None  # digest of the blob
    step_time_curve: tuple[tuple[float, float], ...] = ()  # long runs: seconds, step time in ms
    applied: AppliedCondition = NOTHING_APPLIED
    programs: tuple[KernelProgram, ...] = ()
    judged_runs: int = 0  # that were judged together; 0: its trial is not complete

    @property
    def valid(self) -> bool:
        """Whether all of the run counts."""
        return self.verdict.validity is Validity.VALID

    def counts(self, metric: str) -> bool:
        """Whether the run has a metric that may count in a comparison."""
        return metric in self.metrics and self.validity_of(metric) is Validity.VALID

    def validity_of(self, metric: str) -> Validity:
        """The verdict on a metric, by its family: a slow run may still show what it learned."""
        kind = metric_kind(metric)
        return self.verdict.validity_of(kind.family) if kind else self.verdict.validity


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a planned run, whether it produced metrics or not."""

    trial: str
    repeat: int
    block: int
    position: int
    phone: str
    case: Case
    condition: Condition
    state: RunState
    validity: Validity | None
    memory_outcome: MemoryOutcome | None
    peak_rss_mb: float | None
    fault: Fault | None
    note: str
    applied: AppliedCondition = NOTHING_APPLIED
    peak_rss_source: str = ""  # its provenance


class MeasurementKind(NamedTuple):
    """How a value was obtained; values of different kinds are compared only on request."""

    source: str
    control: str
    grade: str  # how an energy was obtained; empty for other metrics


class Exclusion(TextEnum):
    """Why runs or trials take no part in a comparison."""

    SUSPECT = "suspect", "suspect runs"
    VOID = "void", "void runs"
    METRIC_MISSING = "metric_missing", "runs without this metric"
    NOT_POSITIVE = "not_positive", "runs whose value is not above zero"
    ONE_SIDE_ONLY = "one_side_only", "trials that only one side has"
    NO_VALID_RUN = "no_valid_run", "pairs with no valid run on one side"
    TOO_FEW_RUNS = "too_few_runs", "trials with fewer than two valid runs"


@dataclass(frozen=True)
class MeasuredTrial:
    """A trial: one case under one condition on one phone."""

    sweep: str
    trial: str
    phone: str
    model: str
    soc: str
    case: Case
    condition: Condition


class MetricValue(NamedTuple):
    """One metric of one run, valid or not."""

    trial: MeasuredTrial
    metric: str
    block: int
    started_at: datetime
    validity: Validity
    control: str
    grade: str
    value: float | None
    provenance: Provenance | None


@dataclass(frozen=True)
class TrialSeries(MeasuredTrial):
    """One metric over the runs of a trial: the input of comparisons."""

    metric: str
    values: tuple[float, ...]  # of the valid runs, by block
    blocks: tuple[int, ...]
    times: tuple[datetime, ...]
    provenance: Provenance | None  # the weakest of them
    kinds: frozenset[MeasurementKind]
    left_out: Mapping[Exclusion, int]  # number of runs by reason


def weakest_provenance(provenances: Iterable[Provenance]) -> Provenance:
    """Return the provenance that a number made of several may claim: that of its weakest part."""

    def weakness(provenance: Provenance) -> tuple[int, bool, bool, float]:
        rank = (Source.PHONE, Source.HOST, Source.SIMULATED).index(provenance.source)
        is_uncalibrated = provenance.model is SimulationModel.UNCALIBRATED
        return rank, provenance.error_unknown, is_uncalibrated, provenance.error_rel or 0.0

    return max(provenances, key=weakness)


def refuse_mixed_sources(
    kinds: Iterable[MeasurementKind],
    where: str = "",
    remedy: str = "compare them separately, or pass --allow-mixed",
) -> None:
    """Refuse to combine values whose source, control level or energy grade differ."""
    distinct = set(kinds)
    for index, what in enumerate(("sources", "control levels", "energy grades")):
        values = sorted({kind[index] for kind in distinct})
        if len(values) > 1:
            listed = ", ".join(value or "none" for value in values)
            raise IncompatibleSources(f"{where}{what} differ ({listed}); {remedy}")
