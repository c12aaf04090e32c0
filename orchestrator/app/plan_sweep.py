"""Planning: what a sweep would become on the lab as it is, before anything is queued."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.app.twin_process import estimate_with_twin
from orchestrator.decisions.health import Health
from orchestrator.planning.estimate import (
    EstimateBasis,
    PhoneEstimate,
    TimingHistory,
    estimate_phone,
)
from orchestrator.planning.expand import Expansion, expand_sweep
from orchestrator.planning.plan_warnings import plan_warnings
from orchestrator.planning.trials import Trial
from orchestrator.planning.twin_estimate import (
    from_response,
    is_simulated,
    sample_trials,
    to_request,
)
from orchestrator.store import phone_queries, sweep_queries, timings
from orchestrator.store.database import Database
from orchestrator.store.phone_queries import KnownPhone
from orchestrator.sweepfile.sweep_file import Sweep
from workloads.protocol.phone_facts import PhoneFacts

TIMINGS_MAX = 20_000  # the newest runs say most about the next ones


@dataclass(frozen=True)
class DiskEstimate:
    """What the reports will need, in bytes; None where no run tells yet."""

    bytes_at_most: float | None
    per_run: float | None


@dataclass(frozen=True)
class SweepPlan:
    """Everything that can be said beforehand."""

    sweep: Sweep
    known: bool  # whether there is a lab to ask
    expansion: Expansion
    estimates: tuple[PhoneEstimate, ...] = ()
    disk: DiskEstimate = DiskEstimate(None, None)
    warnings: tuple[str, ...] = ()
    unwell: dict[str, str] = field(default_factory=dict)  # phones that get nothing as they are

    @property
    def runs(self) -> int:
        """How many runs at most."""
        return sum(each.runs for each in self.estimates)

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        rules = [
            {
                "rule": count.rule.name,
                "line": count.rule.line,
                "cells": count.cells,
                "when": str(count.rule.when) if count.rule.when else None,
                "why": count.rule.why,
            }
            for count in self.sweep.rules
        ]
        return {
            "sweep": self.sweep.id,
            "name": self.sweep.name,
            "cells": {"matrix": self.sweep.matrix_cells, "kept": len(self.sweep.cells)},
            "rules": rules,
            "repeats_at_most": self.sweep.repeat,
            "runs_at_most": self.runs,
            "phones": [asdict(each) for each in self.estimates],
            "not_matched": [asdict(each) for each in self.expansion.skipped if not each.cells],
            "cells_left_out": [asdict(each) for each in self.expansion.skipped if each.cells],
            "unwell": self.unwell,
            "disk": asdict(self.disk),
            "doubts": list(self.warnings),
        }


def plan_sweep(sweep: Sweep, db: Database | None) -> SweepPlan:
    """Look ahead; without a store only the file itself can be judged."""
    now = datetime.now(UTC)
    if db is None:
        return SweepPlan(
            sweep, False, Expansion((), ()), warnings=tuple(plan_warnings(sweep, (), (), now))
        )
    phones = phone_queries.known_phones(db)
    facts_of = {phone.serial: phone.facts for phone in phones}
    expansion = spread_trials(sweep, phones, db)
    chosen = [facts_of[serial] for serial in expansion.phones]
    estimates = _estimates(sweep, expansion, chosen, db)
    runs = sum(each.runs for each in estimates)
    return SweepPlan(
        sweep,
        True,
        expansion,
        estimates,
        _disk(sweep, runs, timings.report_sizes(db)),
        tuple(plan_warnings(sweep, chosen, estimates, now)),
        {
            phone.serial: why
            for phone in phones
            if phone.facts in chosen and (why := _unwell(phone))
        },
    )


def spread_trials(sweep: Sweep, phones: Sequence[KnownPhone], db: Database) -> Expansion:
    """Spread a sweep over phones; those that have it already keep it."""
    tags = {phone.serial: phone.tags for phone in phones}
    before = sweep_queries.phones_of_sweep(db, sweep.id)
    return expand_sweep(sweep, [phone.facts for phone in phones], tags, before)


def _estimates(
    sweep: Sweep, expansion: Expansion, phones: list[PhoneFacts], db: Database
) -> tuple[PhoneEstimate, ...]:
    past = TimingHistory(
        timings.newest_timings(db, TIMINGS_MAX),
        phone_queries.phone_models(db),
        timings.protocols_by_condition(db),
    )
    trials_of: dict[str, list[Trial]] = {facts.serial: [] for facts in phones}
    for trial in expansion.trials:
        trials_of[trial.phone].append(trial)
    bare = {
        facts.serial: estimate_phone(sweep, trials_of[facts.serial], facts, past)
        for facts in phones
    }
    asked = {
        facts.model: sample_trials(trials_of[facts.serial], sweep.seed)
        for facts in phones
        if _needs_twin(facts, bare[facts.serial])
    }
    said = estimate_with_twin(
        {model: [to_request(each) for each in some] for model, some in asked.items()}
    )
    for facts in phones:
        if _needs_twin(facts, bare[facts.serial]) and facts.model in said:
            twin = from_response(asked[facts.model], said[facts.model])
            bare[facts.serial] = estimate_phone(sweep, trials_of[facts.serial], facts, past, twin)
    return tuple(bare.values())


def _needs_twin(facts: PhoneFacts, found: PhoneEstimate) -> bool:
    """Whether a phone has no past to go by, and a twin that may know."""
    return EstimateBasis.PROTOCOL_LENGTH in found.bases and is_simulated(facts)


def _disk(sweep: Sweep, runs: int, sizes: timings.ReportSizes) -> DiskEstimate:
    if sizes.report is None:
        return DiskEstimate(None, None)
    telemetry = sizes.telemetry if sweep.policy.collect.telemetry else 0.0
    per_run = sizes.report + (telemetry or 0.0)
    return DiskEstimate(runs * per_run, per_run)


def _unwell(phone: KnownPhone) -> str:
    """Why a phone that is meant gets nothing as long as it is as it is."""
    if phone.health != Health.GOOD:
        return f"{phone.health}: {phone.health_reason}"
    if phone.reserved_by:
        return f"reserved by {phone.reserved_by}"
    return ""
