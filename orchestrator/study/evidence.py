"""Evidence for a study: observed metric values and run outcomes, with their settings.

An observation is one metric under one set of settings on one phone, with one value per run. The
outcomes of all planned runs are kept too, so that a missing value has a reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.analysis.measurements import MeasuredRun, RunOutcome
from orchestrator.planning.states import RunState
from orchestrator.study.telemetry_metrics import (
    TELEMETRY_METRICS,
    telemetry_metrics,
    trace_of_steps,
)
from workloads.catalogue import Case
from workloads.protocol.condition import Condition
from workloads.protocol.memory_outcome import MemoryOutcome
from workloads.protocol.metrics import SENSORS, Provenance, Provenances, metric_kind
from workloads.protocol.telemetry import Telemetry
from workloads.protocol.verdict import Validity, Verdict
from workloads.text import safe_text

# Publicly known, from the makers' support pages: every regional code of a model is one name.
_NAMES = {
    "OnePlus 6": ("A6000", "A6003"),
    "OnePlus 8 Pro": ("IN2020", "IN2021", "IN2023", "IN2025"),
    "OnePlus Nord": ("AC2001", "AC2003"),
    "HUAWEI Mate 30": ("TAS-AL00", "TAS-L29"),
    "HUAWEI Honor 8": ("FRD-AL10", "FRD-L09"),
    "samsung Galaxy S8+": ("SM-G955F", "SM-G9550", "SM-G955U"),
}
_BY_CODE = {code.casefold(): name for name, codes in _NAMES.items() for code in codes}


def with_trade_name(model: str) -> str:
    """Return the name that a model was sold under and its code: 'OnePlus Nord (AC2003)'."""
    for word in model.split():
        name = _BY_CODE.get(word.casefold())
        if name is not None and name.casefold() not in model.casefold():
            return f"{name} ({word})"
    return model


RunSettings = Mapping[str, str | int]

_WHY_NOT_REPORTED = {
    "gpu_util_pct": "the phone does not report how busy its GPU is",
    "rail_power_w": "it has no meter on that rail",
    "time_to_throttle_s": "its clocks did not fall",
    "step_similarity": "fewer than two of its steps were traced",
    "accuracy_last": "accuracy was not evaluated: a virtual phone does not train",
    "accuracy_first": "accuracy was not evaluated: a virtual phone does not train",
    "loss_at_budget": "its token budget was not reached, or a virtual phone does not train",
    "time_to_loss_s": "its target loss was not reached, or a virtual phone does not train",
    "energy_to_loss_j": "its target loss was not reached, or a virtual phone does not train",
    "loss_last": "a virtual phone does not train",
    "op_share": "its operations were not traced",
    "op_energy_share": "no energy was sampled while its operations ran",
}


class Gap(StrEnum):
    """Why a claim cannot be evaluated."""

    UNOBSERVABLE = "unobservable"
    NOT_RUN = "not_run"
    LEFT_OUT = "left_out"
    NO_VALID_RUN = "no_valid_run"
    NOT_OFFERED = "not_offered"
    NOT_REPORTED = "not_reported"
    TOO_FEW_PHONES = "too_few_phones"
    TOO_FEW_SETTINGS = "too_few_settings"
    ZERO_DIVISOR = "zero_divisor"


@dataclass(frozen=True)
class MissingEvidence:
    """Why a claim has no result, as code and as text."""

    gap: Gap
    text: str


class NoEvidence(Exception):
    """There is nothing to evaluate a claim with."""

    def __init__(self, gap: Gap, text: str) -> None:
        super().__init__(text)
        self.missing = MissingEvidence(gap, text)


@dataclass(frozen=True)
class Observation:
    """One metric, with one value per run."""

    phone: str
    settings: RunSettings
    metric: str
    values: tuple[float, ...]
    provenance: Provenance


@dataclass(frozen=True)
class ObservedOutcome:
    """The outcome of a planned run."""

    phone: str
    settings: RunSettings
    label: str
    counts: bool
    reason: str = ""
    provenance: Provenance | None = None
    validity: str = ""  # of a run that ran but does not count
    is_conclusive: bool = False  # it shows its memory: what disturbs a time does not change that


@dataclass(frozen=True)
class StudyEvidence:
    """Everything that the claims of a study are evaluated with."""

    phones: Mapping[str, str] = field(default_factory=dict)  # model by serial
    observations: tuple[Observation, ...] = ()
    outcomes: tuple[ObservedOutcome, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # reason by serial
    # by serial: how busy its processors were over some steps, (ms, percent) by name
    traces: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]] = field(default_factory=dict)

    def find(self, phone: str, metric: str, settings: RunSettings) -> list[Observation]:
        """Return a phone's observations of a metric under these settings."""
        return [
            observation
            for observation in self.observations
            if observation.phone == phone
            and observation.metric == metric
            and matches_settings(observation.settings, settings)
        ]

    def why_not(self, phone: str, metric: str, settings: RunSettings) -> NoEvidence:
        """Return why a phone has no such value."""
        tried = [
            outcome
            for outcome in self.outcomes
            if outcome.phone == phone and matches_settings(outcome.settings, settings)
        ]
        if not tried:
            if phone in self.left_out:
                return NoEvidence(Gap.LEFT_OUT, self.left_out[phone])
            return NoEvidence(Gap.NOT_RUN, "this phone has no such run")
        if not any(outcome.counts for outcome in tried):
            outcome = f"{tried[0].validity or tried[0].label}: {tried[0].reason}".rstrip(": ")
            return NoEvidence(Gap.NO_VALID_RUN, outcome)
        kind = metric_kind(metric)
        if kind and kind.family in SENSORS and not self._offers(phone, kind.family):
            return NoEvidence(Gap.NOT_OFFERED, f"the phone does not report {kind.family}")
        name, _, part = metric.partition(".")
        text = _WHY_NOT_REPORTED.get(name, "not reported") + (f" ({part})" if part else "")
        return NoEvidence(Gap.NOT_REPORTED, text)

    def _offers(self, phone: str, family: str) -> bool:
        kinds = (metric_kind(item.metric) for item in self.observations if item.phone == phone)
        return any(kind is not None and kind.family == family for kind in kinds)


def matches_settings(settings: RunSettings, wanted: RunSettings) -> bool:
    """Return whether settings include all wanted ones."""
    return all(settings.get(key) == value for key, value in wanted.items())


def run_settings(case: Case, condition: Condition) -> dict[str, str | int]:
    """Return the settings of a run that a query may name."""
    return {
        "workload": case.name,
        "engine": "farmhand" if case.manifest is None else "external",
        **case.settings,
        "backend": case.backend,
        "protocol": condition.protocol.value,
        "cores": condition.cores,
        "freq": condition.freq,
    }


def collect_evidence(
    runs: Sequence[MeasuredRun],
    outcomes: Iterable[RunOutcome],
    telemetry: Iterable[tuple[MeasuredRun, Telemetry]] = (),
    left_out: Mapping[str, str] | None = None,
    known: Mapping[str, tuple[str, Provenances | None]] | None = None,
    traced: RunSettings | None = None,
    wanted: Set[str] = TELEMETRY_METRICS,
) -> StudyEvidence:
    """Collect the runs of a study's sweeps; only what counts becomes an observation, by family.

    `known` holds the model and the provenances of every phone. `traced` are the settings of the
    runs whose steps are shown over time, `wanted` the metrics that are computed from telemetry.
    """
    traces: dict[str, Mapping[str, Sequence[tuple[float, float]]]] = {}
    known = known or {run.phone: (run.facts.model, run.facts.provenance) for run in runs}
    values: dict[tuple[str, tuple[tuple[str, str | int], ...], str], list[RunValue]] = {}
    for run, run_values in _run_values(runs, _keep_traces(telemetry, traced, traces), wanted):
        for value in run_values:
            key = (run.phone, tuple(sorted(value[0].items())), value[1])
            values.setdefault(key, []).append(value)
    observations = tuple(
        Observation(
            phone, dict(settings), metric, tuple(number for _, _, number, _ in group), group[0][3]
        )
        for (phone, settings, metric), group in values.items()
    )
    judged = {(run.trial, run.repeat): run.verdict for run in runs}
    phones = {phone: with_trade_name(safe_text(model, 40)) for phone, (model, _) in known.items()}
    return StudyEvidence(
        phones,
        observations,
        tuple(_outcome(planned, judged, known) for planned in outcomes),
        dict(left_out or {}),
        traces,
    )


def _keep_traces(
    telemetry: Iterable[tuple[MeasuredRun, Telemetry]],
    traced: RunSettings | None,
    traces: dict[str, Mapping[str, Sequence[tuple[float, float]]]],
) -> Iterator[tuple[MeasuredRun, Telemetry]]:
    """Pass runs on, and keep the trace of each phone's first run with the wanted settings."""
    for run, recorded in telemetry:
        is_new = traced is not None and run.valid and run.phone not in traces
        if is_new and matches_settings(run_settings(run.case, run.condition), traced or {}):
            traces[run.phone] = trace_of_steps(recorded)
        yield run, recorded


RunValue = tuple[RunSettings, str, float, Provenance]  # settings, metric, value, provenance


def _run_values(
    runs: Sequence[MeasuredRun],
    telemetry: Iterable[tuple[MeasuredRun, Telemetry]],
    wanted: Set[str],
) -> Iterator[tuple[MeasuredRun, Iterable[RunValue]]]:
    for run in runs:
        yield run, _reported_values(run)
    for run, recorded in telemetry:
        settings = run_settings(run.case, run.condition)
        found = telemetry_metrics(run, recorded, wanted)
        yield run, ((settings | more, name, value, source) for more, name, value, source in found)


def _reported_values(run: MeasuredRun) -> Iterator[RunValue]:
    settings = run_settings(run.case, run.condition)
    for name, metric in run.metrics.items():
        if metric.grade != "rejected" and run.counts(name):
            yield settings, name, metric.value, metric.provenance
    # The studies report energy above idle; both parts of the ratio come from the same meter.
    parts = [run.metrics.get(name) for name in ("energy_net_j", "energy_j", "energy_per_step_mj")]
    is_counted = run.counts("energy_j")
    if is_counted and all(part is not None and part.grade != "rejected" for part in parts):
        net, total, per_step = (part.value for part in parts if part is not None)
        if total > 0:
            provenance = run.metrics["energy_net_j"].provenance
            yield settings, "energy_net_per_step_mj", per_step * net / total, provenance
    for name, value in _opencl_values(run) if run.counts("compute_ms") else ():
        yield settings, name, value, run.metrics["compute_ms"].provenance


def _opencl_values(run: MeasuredRun) -> Iterator[tuple[str, float]]:
    """Yield the speed of kernels, and the shares of computing and copying, on an OpenCL device."""
    parts = [run.metrics.get(name) for name in ("copy_ms", "compute_ms", "step_ms")]
    if any(part is None for part in parts):
        return
    copy_ms, compute_ms, step_ms = (part.value for part in parts if part is not None)
    if copy_ms + compute_ms > 0:
        yield "device_copy_share", copy_ms / (copy_ms + compute_ms)
        yield "device_compute_share", compute_ms / (copy_ms + compute_ms)
    yield "compute_share", compute_ms / step_ms
    if (gflops := run.metrics.get("gflops")) and compute_ms > 0:
        yield "kernel_gflops", gflops.value * step_ms / compute_ms


def _outcome(
    planned: RunOutcome,
    judged: Mapping[tuple[str, int], Verdict],
    known: Mapping[str, tuple[str, Provenances | None]],
) -> ObservedOutcome:
    failure = planned.fault.text if planned.fault else planned.note
    verdict = judged.get((planned.trial, planned.repeat))
    reason = failure if verdict is None or verdict.validity is Validity.VALID else verdict.text
    counts = planned.state is RunState.DONE and planned.validity is Validity.VALID
    ran = planned.memory_outcome in (MemoryOutcome.FITS, MemoryOutcome.SWAPS)
    lacked_memory = planned.memory_outcome is not None and not ran
    ended = planned.state in (RunState.DONE, RunState.FAILED)
    shows_memory = ran and ended and verdict is not None and "memory" not in verdict.doubted
    provenances = known[planned.phone][1] if planned.phone in known else None
    return ObservedOutcome(
        planned.phone,
        run_settings(planned.case, planned.condition),
        str(planned.memory_outcome or planned.state),
        counts,
        safe_text(reason, 240),
        provenances.time if provenances else None,
        str(planned.validity or planned.state) if ran and not counts else "",
        counts or shows_memory or (planned.state is RunState.FAILED and lacked_memory),
    )
