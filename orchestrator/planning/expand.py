"""Expands a sweep over phones: every trial that can run, and why the others cannot.

Every phone and cell that is skipped has a reason; nothing is left out silently.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from orchestrator.planning.trials import Trial
from orchestrator.sweepfile.cells import Cell, CellRule
from orchestrator.sweepfile.sweep_file import Sweep
from workloads.catalogue import Case, workload_of
from workloads.protocol.condition import REST, Condition, Protocol
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.phone_facts import FIXED, FREE, PhoneFacts, choose_clock, choose_cores
from workloads.text import safe_text

BACKEND_NAMES = {"cpu": "CPU", "opencl": "OpenCL"}


class SkipCode(StrEnum):
    """Why a phone does not get a cell, or none at all."""

    NOT_SELECTED = "not_selected"  # `phones` does not match it
    NOT_TAKEN = "not_taken"  # `take` needs fewer phones
    EXCLUDED = "excluded"  # by a rule under `exclude`
    NOT_INCLUDED = "not_included"  # the rule under `include` is for other phones
    NO_RUNNER = "no_runner"
    NO_BACKEND = "no_backend"  # its GPU cannot compute
    CORES_UNKNOWN = "cores_unknown"
    NO_CPU_TEMP = "no_cpu_temp"
    CLOCKS_UNKNOWN = "clocks_unknown"
    CONDITION_IMPOSSIBLE = "condition_impossible"
    SEVERAL = "several"  # different reasons for different cells


class SkipReason(NamedTuple):
    """A reason, as code and as text."""

    code: SkipCode
    text: str


@dataclass(frozen=True)
class SkippedPhone:
    """Cells that a phone does not get, and why; without cells the whole phone is skipped."""

    phone: str
    code: SkipCode
    reason: str
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expansion:
    """The trials of a sweep on the available phones, and what was skipped."""

    trials: tuple[Trial, ...]
    skipped: tuple[SkippedPhone, ...]
    unmatched: tuple[str, ...] = ()  # patterns of `phones` that match no phone

    @property
    def phones(self) -> tuple[str, ...]:
        """The phones that get trials."""
        return tuple(dict.fromkeys(trial.phone for trial in self.trials))


def expand_sweep(
    sweep: Sweep,
    phones: Sequence[PhoneFacts],
    tags: Mapping[str, Collection[str]] | None = None,
    assigned: Collection[str] = (),
) -> Expansion:
    """Give every selected phone a trial of every cell that it can run.

    `tags` are the phones' tags by serial; `assigned` names phones that already have the sweep.
    """
    tags = tags or {}
    able: list[tuple[PhoneFacts, list[Trial]]] = []
    skipped: list[SkippedPhone] = []
    for facts in phones:
        phone_tags = tags.get(facts.serial, ())
        why = sweep.phones.why_not(facts, phone_tags)
        if why is not None:
            skipped.append(SkippedPhone(facts.serial, SkipCode.NOT_SELECTED, why))
            continue
        trials, refused = _phone_trials(sweep, facts, phone_tags)
        skipped += _skipped_phones(sweep, facts.serial, refused)
        if trials:
            able.append((facts, trials))
    not_taken = sweep.phones.not_taken([facts for facts, _ in able], sweep.seed, assigned)
    skipped += [SkippedPhone(phone, SkipCode.NOT_TAKEN, why) for phone, why in not_taken.items()]
    taken = [trials for facts, trials in able if facts.serial not in not_taken]
    return Expansion(
        tuple(trial for trials in taken for trial in trials),
        tuple(skipped),
        tuple(sweep.phones.unmatched_patterns(phones)),
    )


def _phone_trials(
    sweep: Sweep, facts: PhoneFacts, tags: Collection[str]
) -> tuple[list[Trial], dict[SkipReason, list[str]]]:
    """Return the trials of one phone, and the cells that it does not get, by reason."""
    applies: dict[int, bool] = {}
    impossible: dict[str, SkipReason | None] = {}
    trials: list[Trial] = []
    refused: dict[SkipReason, list[str]] = {}
    for cell in sweep.cells:
        reason = _rule_against(cell, facts, tags, applies)
        if reason is None and workload_of(cell.case).on_phone:
            if cell.condition_digest not in impossible:
                impossible[cell.condition_digest] = _why_impossible(facts, cell.condition)
            reason = impossible[cell.condition_digest] or _missing_backend(facts, cell.case)
        if reason is None:
            trial = sweep.trial_id(cell.key, facts.serial)
            trials.append(Trial(trial, cell.case, cell.condition, facts.serial))
        else:
            refused.setdefault(reason, []).append(cell.label)
    return trials, refused


def _rule_against(
    cell: Cell, facts: PhoneFacts, tags: Collection[str], applies: dict[int, bool]
) -> SkipReason | None:
    """Return the rule that keeps a cell from a phone; `applies` caches the rules' selectors."""

    def is_for_phone(rule: CellRule) -> bool:
        if id(rule) not in applies:
            applies[id(rule)] = rule.when is None or rule.when.matches(facts, tags)
        return applies[id(rule)]

    for rule in cell.removed_by:
        if is_for_phone(rule):
            return SkipReason(SkipCode.EXCLUDED, f"{rule.name}: {rule.why}")
    if cell.added_by is not None and not is_for_phone(cell.added_by):
        text = f"{cell.added_by.name} is for other phones"
        return SkipReason(SkipCode.NOT_INCLUDED, text)
    return None


def _why_impossible(facts: PhoneFacts, condition: Condition) -> SkipReason | None:
    """Return what keeps a phone from a condition; None when nothing does."""
    if facts.runner_error is not None:
        return SkipReason(SkipCode.NO_RUNNER, safe_text(facts.runner_error))
    if not facts.clusters:
        return SkipReason(SkipCode.CORES_UNKNOWN, "its cores are unknown")
    if not facts.cpu_zones and condition.start_temp_max_c not in {None, REST}:
        text = "it reports no CPU temperature; write start_temp_max_c: rest, or any"
        return SkipReason(SkipCode.NO_CPU_TEMP, text)
    if not facts.cpu_zones and condition.protocol is Protocol.SOAKED:
        text = "it reports no CPU temperature; protocol: soaked cannot see when it is steady"
        return SkipReason(SkipCode.NO_CPU_TEMP, text)
    try:
        chosen = set(choose_cores(facts, condition.cores).cpus)
        for cluster in facts.clusters:
            if not chosen.isdisjoint(cluster.cpus):
                if not cluster.ladder_khz and condition.freq != FREE:
                    text = f"policy{cluster.policy} lists no clocks; write freq: free"
                    return SkipReason(SkipCode.CLOCKS_UNKNOWN, text)
                choose_clock(cluster, condition.freq)
        if not facts.clocks_writable and condition.freq not in {FREE, FIXED, "high"}:
            text = (
                "its clocks cannot be set; use freq: free, or freq: high, which then only checks "
                "that the clocks stay at their maximum"
            )
            return SkipReason(SkipCode.CONDITION_IMPOSSIBLE, text)
    except InvalidRequest as refused:
        return SkipReason(SkipCode.CONDITION_IMPOSSIBLE, safe_text(refused))
    return None


def _missing_backend(facts: PhoneFacts, case: Case) -> SkipReason | None:
    """Return what keeps a phone from the processor that a case needs; None when nothing does."""
    if facts.offers(case.backend):
        return None
    text = f"its runner found no {BACKEND_NAMES[case.backend]} device; use backend: cpu"
    return SkipReason(SkipCode.NO_BACKEND, text)


def _skipped_phones(
    sweep: Sweep, phone: str, refused: Mapping[SkipReason, Sequence[str]]
) -> list[SkippedPhone]:
    if sum(map(len, refused.values())) == len(sweep.cells):
        codes = {reason.code for reason in refused}
        code = codes.pop() if len(codes) == 1 else SkipCode.SEVERAL
        return [SkippedPhone(phone, code, "; ".join(reason.text for reason in refused))]
    return [
        SkippedPhone(phone, reason.code, reason.text, tuple(cells))
        for reason, cells in refused.items()
    ]
