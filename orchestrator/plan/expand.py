"""A sweep spread over phones: every trial that can be run, and why the others cannot.

Nothing is left out silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.nouns import Trial
from orchestrator.plan.sweep import Sweep
from workloads.catalogue import Case, workload_of
from workloads.condition import Condition
from workloads.fault import Refused
from workloads.noun import digest_of
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


def expand(sweep: Sweep, phones: Sequence[PhoneFacts]) -> Expansion:
    """Give every matched phone a trial of every cell that it can run."""
    case_digests = [case.digest for case in sweep.cases]
    condition_digests = [condition.digest for condition in sweep.conditions]
    trials: list[Trial] = []
    skipped: list[Skipped] = []
    for facts in phones:
        if not matches(sweep.phones, facts):
            wanted = ", ".join(sweep.phones)
            skipped.append(Skipped(facts.serial, f"matches none of: {safe_text(wanted)}"))
            continue
        why_not = [_why_not(facts, condition) for condition in sweep.conditions]
        refused: dict[str, list[str]] = {}
        for case, case_digest in zip(sweep.cases, case_digests, strict=True):
            for index, condition in enumerate(sweep.conditions):
                reason = why_not[index] if workload_of(case).on_phone else None
                if reason is None:
                    parts = [sweep.id, case_digest, condition_digests[index], facts.serial]
                    trials.append(Trial(_id(parts), case, condition, facts.serial))
                else:
                    refused.setdefault(reason, []).append(_label(case, condition))
        skipped += _skipped(sweep, facts.serial, refused)
    return Expansion(tuple(trials), tuple(skipped))


def matches(patterns: Sequence[str], facts: PhoneFacts) -> bool:
    """Hold a phone's serial, model and SoC against patterns that are written in lower case."""
    names = [name.lower() for name in (facts.serial, facts.model, facts.soc)]
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


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
    if sum(map(len, refused.values())) == len(sweep.cases) * len(sweep.conditions):
        return [Skipped(phone, "; ".join(refused))]
    return [Skipped(phone, reason, tuple(cells)) for reason, cells in refused.items()]


def _label(case: Case, condition: Condition) -> str:
    return f"{case.label}, {condition.label}"


def _id(parts: Sequence[str]) -> str:
    return f"tr-{digest_of(list(parts))[:16]}"
