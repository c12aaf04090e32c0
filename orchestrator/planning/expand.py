"""A sweep spread over phones: every trial that can be run, and why the others cannot.

Nothing is left out silently.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.nouns import Trial
from orchestrator.plan.cells import Cell, Rule
from orchestrator.plan.sweep import Sweep
from workloads.catalogue import workload_of
from workloads.condition import Condition
from workloads.fault import Refused
from workloads.phone import PhoneFacts, choose_clock, choose_cores
from workloads.text import safe_text


@dataclass(frozen=True)
class Skipped:
    """Cells that a phone does not get, and why; without cells it is the whole phone."""

    phone: str
    reason: str
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expansion:
    """What a sweep becomes on the phones at hand."""

    trials: tuple[Trial, ...]
    skipped: tuple[Skipped, ...]

    @property
    def phones(self) -> tuple[str, ...]:
        """The phones that get something to do."""
        return tuple(dict.fromkeys(trial.phone for trial in self.trials))


def expand(
    sweep: Sweep,
    phones: Sequence[PhoneFacts],
    tags: Mapping[str, Collection[str]] | None = None,
    before: Collection[str] = (),
) -> Expansion:
    """Give every phone that is meant a trial of every cell that it can run.

    `tags` are the phones' labels by serial; `before` names phones that have the sweep already.
    """
    tags = tags or {}
    able: list[tuple[PhoneFacts, list[Trial]]] = []
    skipped: list[Skipped] = []
    for facts in phones:
        labels = tags.get(facts.serial, ())
        reason = sweep.phones.why_not(facts, labels)
        if reason is not None:
            skipped.append(Skipped(facts.serial, reason))
            continue
        trials, refused = _on_phone(sweep, facts, labels)
        skipped += _skipped(sweep, facts.serial, refused)
        if trials:
            able.append((facts, trials))
    spare = sweep.phones.taken([facts for facts, _ in able], sweep.seed, before)
    skipped += [Skipped(phone, reason) for phone, reason in spare.items()]
    taken = [trials for facts, trials in able if facts.serial not in spare]
    return Expansion(tuple(trial for trials in taken for trial in trials), tuple(skipped))


def _on_phone(
    sweep: Sweep, facts: PhoneFacts, labels: Collection[str]
) -> tuple[list[Trial], dict[str, list[str]]]:
    """The trials of one phone, and the cells that it does not get, by reason."""
    holds: dict[int, bool] = {}
    cannot: dict[str, str | None] = {}
    trials: list[Trial] = []
    refused: dict[str, list[str]] = {}
    for cell in sweep.cells:
        reason = _ruled_out(cell, facts, labels, holds)
        if reason is None and workload_of(cell.case).on_phone:
            if cell.condition_digest not in cannot:
                cannot[cell.condition_digest] = _why_not(facts, cell.condition)
            reason = cannot[cell.condition_digest]
        if reason is None:
            trial = sweep.trial_id(cell.key, facts.serial)
            trials.append(Trial(trial, cell.case, cell.condition, facts.serial))
        else:
            refused.setdefault(reason, []).append(cell.label)
    return trials, refused


def _ruled_out(
    cell: Cell, facts: PhoneFacts, labels: Collection[str], holds: dict[int, bool]
) -> str | None:
    """The rule that keeps a cell from a phone; `holds` remembers what was asked before."""

    def meant(rule: Rule) -> bool:
        if id(rule) not in holds:
            holds[id(rule)] = rule.when is None or rule.when.matches(facts, labels)
        return holds[id(rule)]

    for rule in cell.removed_by:
        if meant(rule):
            return f"{rule.name}: {rule.why}"
    if cell.added_by is not None and not meant(cell.added_by):
        return f"{cell.added_by.name} is not for it"
    return None


def _why_not(facts: PhoneFacts, condition: Condition) -> str | None:
    """Say what keeps a phone from a condition; None when nothing does."""
    if facts.runner_absent is not None:
        return safe_text(facts.runner_absent)
    if not facts.clusters:
        return "its cores are not known"
    if not facts.cpu_zones and condition.start_temp_max_c is not None:
        return "it has no CPU temperature to start from; write start_temp_max_c: any"
    try:
        chosen = set(choose_cores(facts, condition.cores).cpus)
        for cluster in facts.clusters:
            if not chosen.isdisjoint(cluster.cpus):
                if not cluster.ladder_khz and condition.freq != "free":
                    return f"policy{cluster.policy} tells no clocks; write freq: free"
                choose_clock(cluster, condition.freq)
    except Refused as refused:
        return safe_text(refused)
    return None


def _skipped(sweep: Sweep, phone: str, refused: dict[str, list[str]]) -> list[Skipped]:
    if sum(map(len, refused.values())) == len(sweep.cells):
        return [Skipped(phone, "; ".join(refused))]
    return [Skipped(phone, reason, tuple(cells)) for reason, cells in refused.items()]
