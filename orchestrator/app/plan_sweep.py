"""Checks and plans a sweep: which runs it becomes on which phones, how long they take."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.analysis.set_clocks import PlannedCondition, in_order, planned_cell
from orchestrator.analysis.smallest_difference import CellDigests, RunSpread, SmallestDifference
from orchestrator.analysis.trial_series import group_by_trial
from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import Role, operation
from orchestrator.app.screen.waiting_sweep import is_reserved
from orchestrator.app.store_files import file_head
from orchestrator.app.twin_estimate import (
    estimate_with_twin,
    is_simulated,
    sample_trials,
    to_request,
    twin_predictions,
)
from orchestrator.planning.estimate import (
    DurationRange,
    PhoneEstimate,
    TimingHistory,
    estimate_phone,
)
from orchestrator.planning.expand import Expansion, SkippedPhone, expand_sweep
from orchestrator.planning.plan_warnings import (
    clock_warnings,
    plan_warnings,
    same_planned_clocks,
)
from orchestrator.planning.run_durations import Durations, EstimateBasis
from orchestrator.planning.run_limits import StepTime, limit_warnings, step_s_from_run
from orchestrator.planning.start_outlook import never_cool, start_waits
from orchestrator.planning.states import Health
from orchestrator.planning.trials import Trial
from orchestrator.store import phone_queries, sweep_queries, timings
from orchestrator.store.database import Database
from orchestrator.store.metric_rows import metric_values
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.sweepfile.sweep_errors import BadSweep
from orchestrator.sweepfile.sweep_file import Sweep, read_sweep
from orchestrator.sweepfile.workload_reader import FetchFile, fetch_no_file
from workloads.catalogue import cost_of, launch_for, step_of
from workloads.protocol.faults import BrokerDown, FarmError
from workloads.protocol.phone_facts import PhoneFacts
from workloads.protocol.same_clocks import SameClock
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.dispatch.central_broker import CentralBroker

__all__ = ["BadSweep", "DurationRange"]

TIMINGS_MAX = 20_000  # only the newest runs are used
UNPREDICTED = frozenset({EstimateBasis.LAB, EstimateBasis.PROTOCOL_LENGTH})  # a twin is better
LARGEST_TRIALS = 12  # of a phone that a twin is asked about, because they may be too slow


@dataclass(frozen=True)
class DiskEstimate:
    """The disk space that the reports will need, in bytes; None while no run is stored."""

    bytes_at_most: float | None
    per_run: float | None


@dataclass(frozen=True)
class SweepName:
    """The id and the name of a sweep."""

    id: str
    name: str


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep would become on this lab."""

    sweep: SweepName
    skipped: tuple[SkippedPhone, ...] = ()
    estimates: tuple[PhoneEstimate, ...] = ()
    disk: DiskEstimate = DiskEstimate(None, None)
    warnings: tuple[str, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)  # matching phones that get no runs
    store_error: str = ""  # why the phones of the lab are not known
    same_clocks: tuple[SameClock, ...] = ()  # levels that a phone does not distinguish
    waits: tuple[str, ...] = ()  # of phones that are too warm to start at once

    repeats: int = 0  # at most
    conditions: tuple[PlannedCondition, ...] = ()  # as they will be applied
    models: dict[str, str] = field(default_factory=dict)  # by phone
    shows: dict[str, SmallestDifference] = field(default_factory=dict)  # by phone, where known

    @property
    def runs(self) -> int:
        """The largest number of runs."""
        return sum(estimate.runs for estimate in self.estimates)

    def as_json(self, sweep: Sweep) -> dict[str, Any]:
        """The plan of a sweep as JSON."""
        rules = [
            {
                "rule": count.rule.name,
                "line": count.rule.line,
                "cells": count.cells,
                "when": str(count.rule.when) if count.rule.when else None,
                "why": count.rule.why,
            }
            for count in sweep.rules
        ]
        return {
            "sweep": self.sweep.id,
            "name": self.sweep.name,
            "cells": {"matrix": sweep.matrix_cells, "kept": len(sweep.cells)},
            "rules": rules,
            "repeats_at_most": sweep.repeat,
            "runs_at_most": self.runs,
            "phones": [asdict(each) for each in self.estimates],
            "not_matched": [asdict(each) for each in self.skipped if not each.cells],
            "cells_left_out": [asdict(each) for each in self.skipped if each.cells],
            "unavailable": self.unavailable,
            "disk": asdict(self.disk),
            "warnings": list(self.warnings),
            "waits": list(self.waits),
            "same_clocks": [asdict(each) for each in self.same_clocks],
            "conditions": [
                {"phone": cell.phone, "condition": cell.condition.label}
                | cell.applied.model_dump(include={"cpus", "clocks_khz", "gpu_khz"})
                for cell in self.conditions
            ],
            "smallest_difference": {phone: asdict(each) for phone, each in self.shows.items()},
        }


def check_sweep(text: str, fetch: FetchFile = fetch_no_file) -> Sweep:
    """Read and validate a sweep file; this needs no lab."""
    return read_sweep(text, fetch)


@operation(Role.VIEWER)
def plan_sweep(lab: LabConnection, text: str, fetch: FetchFile = fetch_no_file) -> SweepPlan:
    """Plan a sweep without queueing it; without a store only the file itself is checked."""
    sweep = read_sweep(text, fetch)
    try:
        store = lab.store
    except FarmError as error:
        warnings = tuple(plan_warnings(sweep, (), (), datetime.now(UTC)))
        named = SweepName(sweep.id, sweep.name)
        return SweepPlan(named, warnings=warnings, store_error=str(error))
    missing = missing_files(partial(file_head, lab.lab.files_folder), sweep)
    plan = plan_on_phones(sweep, store, missing)
    outlook = start_outlook(lab.broker, sweep, [each.phone for each in plan.estimates])
    return replace(plan, warnings=(*plan.warnings, *outlook.warnings), waits=outlook.waits)


class StartOutlook(NamedTuple):
    """Which phones are too warm for a sweep now: for good, and for how long."""

    warnings: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


def start_outlook(broker: "CentralBroker", sweep: Sweep, serials: Collection[str]) -> StartOutlook:
    """Compare the present temperatures of phones with the start temperatures of a sweep."""
    conditions = list(dict.fromkeys(cell.condition for cell in sweep.cells))
    try:
        reported = [phone for heartbeat in broker.heartbeats() for phone in heartbeat.phones]
    except BrokerDown:
        return StartOutlook()
    phones = [phone for phone in reported if phone.serial in serials]
    waits = start_waits(conditions, phones)
    return StartOutlook(tuple(never_cool(conditions, phones)), tuple(waits))


def missing_files(head: Callable[[str], bytes | None], sweep: Sweep) -> list[str]:
    """Return what is to be added to the lab before a sweep's programs and data sets can run.

    `head` returns the first bytes of a file of the lab, or None if the lab does not have it.
    """
    programs = {
        item.sha256: f"{item.name} ({item.sha256[:12]}) is not in the lab; add it with "
        "'farm workload add'"
        for case in sweep.cases
        for item in (case.manifest.files if case.manifest else ())
    }
    data_sets = {
        case.data: f"the data set {case.data[:12]} is not in the lab; add it with "
        "'farm workload add --dataset'"
        for case in sweep.cases
        if case.data
    }
    wanted = programs | data_sets
    heads = {digest: head(digest) for digest in wanted}
    missing = [text for digest, text in wanted.items() if heads[digest] is None]
    return [*missing, *dict.fromkeys(_unfit_data(heads, sweep))]


def _unfit_data(heads: Mapping[str, bytes | None], sweep: Sweep) -> Iterator[str]:
    """Say which data sets have other samples, or fewer, than their cases read."""
    from workloads.dataset_files import data_mismatch
    from workloads.lowering import lower_step

    for case in sweep.cases:
        if case.data is None or (head := heads[case.data]) is None:
            continue
        if why := data_mismatch(head, lower_step(step_of(case)).streams):
            yield f"the data set {case.data[:12]} {why}"


def plan_on_phones(sweep: Sweep, db: Database, more_warnings: Sequence[str] = ()) -> SweepPlan:
    """Plan a sweep on the phones that the store knows."""
    phones = phone_queries.known_phones(db)
    facts_of = {phone.serial: phone.facts for phone in phones}
    expansion = spread_trials(sweep, phones, db)
    chosen = [facts_of[serial] for serial in expansion.phones]
    estimates, step_time = _estimates(sweep, expansion, chosen, db)
    runs = sum(estimate.runs for estimate in estimates)
    same = same_planned_clocks(expansion.trials, chosen)
    return SweepPlan(
        SweepName(sweep.id, sweep.name),
        expansion.skipped,
        estimates,
        _disk(sweep, runs, timings.report_sizes(db)),
        (
            *more_warnings,
            *pattern_warnings(expansion),
            *clock_warnings(same),
            *limit_warnings(expansion.trials, chosen, step_time),
            *plan_warnings(sweep, chosen, estimates, datetime.now(UTC)),
        ),
        {
            phone.serial: reason
            for phone in phones
            if phone.serial in expansion.phones and (reason := _why_unavailable(phone))
        },
        same_clocks=same,
        repeats=sweep.repeat,
        conditions=tuple(in_order(list(_planned_cells(sweep, chosen)))),
        models={facts.serial: facts.model for facts in chosen},
        shows=_smallest_differences(sweep, expansion, db),
    )


def _planned_cells(sweep: Sweep, phones: Sequence[PhoneFacts]) -> Iterator[PlannedCondition]:
    """Resolve every condition on every phone."""
    for facts in phones:
        for condition in sweep.conditions:
            if (cell := planned_cell(facts, condition)) is not None:
                yield cell


def _smallest_differences(
    sweep: Sweep, expansion: Expansion, db: Database
) -> dict[str, SmallestDifference]:
    """Return the smallest difference that the repeats show, for phones with earlier runs."""
    spread = RunSpread(group_by_trial(metric_values(db)))
    cells: dict[str, list[tuple[CellDigests, str]]] = {}
    for trial in expansion.trials:
        cell = (trial.case.digest, trial.condition.digest)
        cells.setdefault(trial.phone, []).append((cell, trial.condition.protocol.value))
    found = {
        phone: spread.smallest_difference(phone, own, sweep.repeat) for phone, own in cells.items()
    }
    return {phone: shown for phone, shown in found.items() if shown is not None}


def spread_trials(sweep: Sweep, phones: Sequence[KnownPhone], db: Database) -> Expansion:
    """Assign the trials of a sweep to phones; phones that already have trials of it keep them."""
    tags = {phone.serial: phone.tags for phone in phones}
    before = sweep_queries.phones_of_sweep(db, sweep.id)
    in_use = [phone.facts for phone in phones if phone.health is not Health.RETIRED]
    return expand_sweep(sweep, in_use, tags, before)


def pattern_warnings(expansion: Expansion) -> list[str]:
    """Return a warning for every pattern of `phones` that matches no phone."""
    return [
        f"phones: '{safe_text(pattern, 60)}' matches no phone; 'farm phone list' shows all"
        for pattern in expansion.unmatched
    ]


def _estimates(
    sweep: Sweep, expansion: Expansion, phones: list[PhoneFacts], db: Database
) -> tuple[tuple[PhoneEstimate, ...], StepTime]:
    """Estimate the time of every phone, and how long steps take as far as it is known."""
    models = phone_queries.phone_models(db)
    runs, protocols = timings.newest_timings(db, TIMINGS_MAX), timings.protocols_by_condition(db)
    history = TimingHistory(
        Durations(runs, models, protocols),
        models,
        timings.profiled_steps(db, [facts.serial for facts in phones]),
        timings.phone_speeds(db),
    )
    trials_of: dict[str, list[Trial]] = {facts.serial: [] for facts in phones}
    for trial in expansion.trials:
        trials_of[trial.phone].append(trial)
    estimates = {
        facts.serial: estimate_phone(sweep, trials_of[facts.serial], facts, history)
        for facts in phones
    }
    # Without earlier runs, a model predicts run times, and which steps are too slow.
    samples: dict[str, list[Trial]] = {}
    largest: dict[str, list[Trial]] = {}
    for facts in (facts for facts in phones if is_simulated(facts)):
        trials = trials_of[facts.serial]
        is_new = not UNPREDICTED.isdisjoint(estimates[facts.serial].bases)
        samples[facts.model] = sample_trials(trials, sweep.seed) if is_new else []
        largest[facts.model] = _largest_trials(trials, facts, history)
    requests = {model: [*samples[model], *largest[model]] for model in samples}
    responses = estimate_with_twin(
        {model: [to_request(trial) for trial in trials] for model, trials in requests.items()}
    )
    simulated_s: dict[tuple[str, ...], float] = {}
    for facts in (facts for facts in phones if facts.model in responses):
        serial, model = facts.serial, facts.model
        if samples[model]:
            twin = twin_predictions(samples[model], responses[model][: len(samples[model])])
            estimates[serial] = estimate_phone(sweep, trials_of[serial], facts, history, twin)
        for trial, pairs in zip(requests[model], responses[model], strict=True):
            launch = launch_for(trial.case, trial.condition.launch)
            step_s = step_s_from_run(launch, pairs[len(pairs) // 2][0]) if pairs else None
            if step_s is not None:
                simulated_s[model, trial.case.digest, trial.condition.digest] = step_s
    facts_of = {facts.serial: facts for facts in phones}

    def step_time(trial: Trial) -> float | None:
        facts = facts_of[trial.phone]
        step_ms = history.step_ms(trial, facts)
        if step_ms is not None:
            return step_ms / 1000
        return simulated_s.get((facts.model, trial.case.digest, trial.condition.digest))

    return tuple(estimates.values()), step_time


def _largest_trials(
    trials: Sequence[Trial], facts: PhoneFacts, history: TimingHistory
) -> list[Trial]:
    """Return the trials of unknown step time, one per core set and clock, that cost the most."""
    known = [trial for trial in trials if trial.case.manifest is None]
    by_condition: dict[str, Trial] = {}
    for trial in sorted(known, key=lambda trial: cost_of(trial.case).flops):
        if history.step_ms(trial, facts) is None:
            by_condition[trial.condition.digest] = trial
    return list(by_condition.values())[-LARGEST_TRIALS:]


def _disk(sweep: Sweep, runs: int, sizes: timings.ReportSizes) -> DiskEstimate:
    if sizes.report is None:
        return DiskEstimate(None, None)
    telemetry = sizes.telemetry if sweep.policy.collect.telemetry else 0.0
    per_run = sizes.report + (telemetry or 0.0)
    return DiskEstimate(runs * per_run, per_run)


def _why_unavailable(phone: KnownPhone) -> str:
    """Why a phone that matches gets no runs at the moment; empty if it gets runs."""
    if phone.health != Health.GOOD:
        return f"{phone.health}: {phone.health_reason}"
    if is_reserved(phone, datetime.now(UTC)):
        return f"reserved by {phone.reserved_by}"
    return ""
