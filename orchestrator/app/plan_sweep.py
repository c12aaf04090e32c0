"""Planning: what a sweep would become on the lab as it is, before anything is queued."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.lab.twin import ask_twins
from orchestrator.nouns import KnownPhone, Trial
from orchestrator.plan.doubts import doubts
from orchestrator.plan.estimate import Basis, Past, PhoneEstimate, estimate
from orchestrator.plan.expand import Expansion, expand
from orchestrator.plan.health import Health
from orchestrator.plan.sweep import Sweep
from orchestrator.plan.twin import answer, asked_about, has_twin, question
from orchestrator.store import history, queries
from orchestrator.store.database import Database
from workloads.phone import PhoneFacts


@dataclass(frozen=True)
class Disk:
    """What the reports will need, in bytes; None where no run tells yet."""

    bytes_at_most: float | None
    per_run: float | None


@dataclass(frozen=True)
class Outlook:
    """Everything that can be said beforehand."""

    sweep: Sweep
    known: bool  # whether there is a lab to ask
    expansion: Expansion
    estimates: tuple[PhoneEstimate, ...] = ()
    disk: Disk = Disk(None, None)
    doubts: tuple[str, ...] = ()
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
            "doubts": list(self.doubts),
        }


def plan(sweep: Sweep, db: Database | None) -> Outlook:
    """Look ahead; without a store only the file itself can be judged."""
    now = datetime.now(UTC)
    if db is None:
        return Outlook(sweep, False, Expansion((), ()), doubts=tuple(doubts(sweep, (), (), now)))
    phones = queries.known_phones(db)
    facts_of = {phone.serial: phone.facts for phone in phones}
    expansion = spread(sweep, phones, db)
    chosen = [facts_of[serial] for serial in expansion.phones]
    estimates = _estimates(sweep, expansion, chosen, db)
    runs = sum(each.runs for each in estimates)
    return Outlook(
        sweep,
        True,
        expansion,
        estimates,
        _disk(sweep, runs, history.sizes(db)),
        tuple(doubts(sweep, chosen, estimates, now)),
        {
            phone.serial: why
            for phone in phones
            if phone.facts in chosen and (why := _unwell(phone))
        },
    )


def spread(sweep: Sweep, phones: Sequence[KnownPhone], db: Database) -> Expansion:
    """Spread a sweep over phones; those that have it already keep it."""
    tags = {phone.serial: phone.tags for phone in phones}
    before = history.phones_of(db, sweep.id)
    return expand(sweep, [phone.facts for phone in phones], tags, before)


def _estimates(
    sweep: Sweep, expansion: Expansion, phones: list[PhoneFacts], db: Database
) -> tuple[PhoneEstimate, ...]:
    past = Past(history.past_runs(db))
    trials_of: dict[str, list[Trial]] = {facts.serial: [] for facts in phones}
    for trial in expansion.trials:
        trials_of[trial.phone].append(trial)
    bare = {facts.serial: estimate(sweep, trials_of[facts.serial], facts, past) for facts in phones}
    asked = {
        facts.model: asked_about(trials_of[facts.serial], sweep.seed)
        for facts in phones
        if _needs_twin(facts, bare[facts.serial])
    }
    said = ask_twins({model: [question(each) for each in some] for model, some in asked.items()})
    for facts in phones:
        if _needs_twin(facts, bare[facts.serial]) and facts.model in said:
            twin = answer(asked[facts.model], said[facts.model])
            bare[facts.serial] = estimate(sweep, trials_of[facts.serial], facts, past, twin)
    return tuple(bare.values())


def _needs_twin(facts: PhoneFacts, found: PhoneEstimate) -> bool:
    """Whether a phone has no past to go by, and a twin that may know."""
    return Basis.LENGTH in found.bases and has_twin(facts)


def _disk(sweep: Sweep, runs: int, sizes: history.Sizes) -> Disk:
    if sizes.report is None:
        return Disk(None, None)
    telemetry = sizes.telemetry if sweep.policy.collect.telemetry else 0.0
    per_run = sizes.report + (telemetry or 0.0)
    return Disk(runs * per_run, per_run)


def _unwell(phone: KnownPhone) -> str:
    """Why a phone that is meant gets nothing as long as it is as it is."""
    if phone.health != Health.GOOD:
        return f"{phone.health}: {phone.health_why}"
    if phone.reserved_by:
        return f"reserved by {phone.reserved_by}"
    return ""
