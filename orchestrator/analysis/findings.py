"""Summarises a sweep in plain sentences: the fastest phone cold, after ten minutes, and a cohort.

A sentence never claims more than its numbers support: it marks simulated numbers first, calls a
lead that may be chance a lead and not a win, and names missing data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.fleet_means import (
    FleetMean,
    FleetMeans,
    fleet_means,
    fleet_scopes,
    heat_slowdown,
)
from orchestrator.analysis.measurements import MeasuredRun, weakest_provenance
from orchestrator.analysis.rank_statement import (
    CLAIM_RUNS_MIN,
    RankClaim,
    are_distinguishable,
    instability,
    provenance_prefix,
)
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import Provenance
from workloads.units import format_ms

COLD_METRIC = "step_ms"
SUSTAINED_METRIC = "last_minute_step_ms"
COHORT_SIZE = 3
EQUAL_MARGIN = 0.02


@dataclass(frozen=True)
class Finding:
    """An answer in one sentence; provenance is None when there is no answer."""

    question: str
    sentence: str
    provenance: Provenance | None = None
    answer: str = ""  # the same, in a word or two
    unproven: RankClaim | None = None  # why the lead of the first phone is not proven
    chosen: tuple[str, ...] = ()  # the serial numbers of the phones that it recommends


@dataclass(frozen=True)
class TopThree:
    """Three phones, the fastest first, and the phones that came next."""

    chosen: tuple[FleetMean, ...]
    next_fastest: FleetMean | None
    runner_up: FleetMean | None  # as fast, but needs more energy


def fleet_findings(
    runs: Sequence[MeasuredRun], mix: bool = False
) -> tuple[Finding, Finding, Finding]:
    """Answer the three main questions about a sweep; backends and engines are not averaged."""
    found = {name: _scope_findings(own, mix) for name, own in fleet_scopes(runs).items()}
    names = list(found)
    cold, hot, cohort = (_join(names, each) for each in zip(*found.values(), strict=True))
    return cold, hot, cohort


def _join(names: Sequence[str], findings: Sequence[Finding]) -> Finding:
    """Join the answers of several backends or engines, each with its name."""
    if len(names) == 1:
        return findings[0]
    named = list(zip(names, findings, strict=True))
    known = [finding.provenance for finding in findings if finding.provenance is not None]
    return Finding(
        findings[0].question,
        " ".join(f"{name}: {finding.sentence}" for name, finding in named),
        weakest_provenance(known) if known else None,
        "; ".join(f"{name}: {finding.answer}" for name, finding in named if finding.answer),
        next((finding.unproven for finding in findings if finding.unproven), None),
    )


def _scope_findings(runs: Sequence[MeasuredRun], mix: bool) -> tuple[Finding, Finding, Finding]:
    cold = fleet_means(runs, Protocol.COLD, COLD_METRIC, mix)
    sustained = fleet_means(runs, Protocol.ENDURANCE, SUSTAINED_METRIC, mix)
    energy = fleet_means(runs, Protocol.ENDURANCE, "energy_per_step_mj", mix)
    return (
        _finding("Which phone is fastest when cold?", cold, _lead(cold, "when cold"), _first(cold)),
        _finding(
            "Which phone is fastest after ten minutes?",
            sustained,
            _lead(sustained, "after ten minutes of heat") + _change_by_heat(cold, sustained),
            _first(sustained),
        ),
        _cohort_finding(sustained, energy),
    )


def _first(means: FleetMeans) -> str:
    """Name the first phone, and mark a lead that is not proven."""
    if not means.ranked:
        return ""
    first = means.ranked[0].name
    return f"{first} (not proven)" if _unproven_reason(means) else first


def _finding(question: str, means: FleetMeans, text: str, answer: str) -> Finding:
    if not means.ranked:
        return Finding(question, f"No phone can be ranked first: {means.problem}.")
    provenance = weakest_provenance(mean.provenance for mean in means.ranked)
    sentence = f"{provenance_prefix(provenance)}{text}{_scope(means)}."
    sentence = sentence[0].upper() + sentence[1:]
    return Finding(question, sentence, provenance, answer, _unproven_reason(means))


def _lead(means: FleetMeans, when: str) -> str:
    """Name the first phone, and say whether its lead is proven."""
    if not means.ranked:
        return ""
    first, *rest = means.ranked
    if not rest:
        return f"{when}, {first.name} needs {_ms(first)} per step; no other phone can be compared"
    second = rest[0]
    if _unproven_reason(means) is None:
        ahead = f"{second.value / first.value:.2f} times as fast as {second.name} ({_ms(second)})"
        return f"{when}, {first.name} is fastest with {_ms(first)} per step, {ahead}"
    lead = f"{when}, {first.name} leads with {_ms(first)} per step, ahead of {second.name} with "
    return f"{lead}{_ms(second)}; {_unproven_text(means)}"


def _unproven_reason(means: FleetMeans) -> RankClaim | None:
    """Return why the lead is not proven; None when it is, or when there is only one phone."""
    first, *rest = means.ranked
    if all(are_distinguishable(first, other) for other in rest):
        return None
    if any(mean.provenance.error_unknown for mean in means.ranked):
        return RankClaim.ERROR_UNKNOWN
    if min(mean.interval.n for mean in means.ranked) < CLAIM_RUNS_MIN:
        return RankClaim.TOO_FEW_RUNS
    return RankClaim.UNSTABLE if instability(first, rest) else RankClaim.NOT_DISTINGUISHABLE


def _unproven_text(means: FleetMeans) -> str:
    first, *rest = means.ranked
    match _unproven_reason(means):
        case RankClaim.ERROR_UNKNOWN:
            return "this is not proven, because the numbers come from a model of unknown error"
        case RankClaim.TOO_FEW_RUNS:
            fewest = min(mean.interval.n for mean in means.ranked)
            runs = "one run" if fewest == 1 else f"{fewest} runs"
            return f"this is not proven with {runs} per cell"
        case RankClaim.UNSTABLE:
            unstable = instability(first, rest)
            return f"this is not proven: {unstable.text if unstable else 'unclear'}"
        case _:
            close = sum(not are_distinguishable(first, other) for other in rest)
            phones = "one phone" if close == 1 else f"{close} phones"
            return f"the difference to {phones} is not significant"


def _change_by_heat(cold: FleetMeans, sustained: FleetMeans) -> str:
    """Say how the phone that was first when cold ranks after ten minutes."""
    if not sustained.ranked:
        return ""
    if not cold.ranked:
        return f"; the cold ranking is unknown: {cold.problem}"
    winner = cold.ranked[0]
    phones = [mean.phone for mean in sustained.ranked]
    if winner.phone not in phones:
        return f"; {winner.name}, first when cold, has no valid ten-minute run"
    rank = phones.index(winner.phone) + 1
    after = sustained.ranked[rank - 1]
    heat = heat_slowdown(winner, after)
    slowdown = f"{heat.ratio:.2f} times its cold time" if heat else ""
    if rank == 1:
        return f"; it was also first when cold{slowdown and f' and now takes {slowdown}'}"
    text = f"; {winner.name}, first when cold, is now number {rank} with {_ms(after)}"
    return text + (slowdown and f", {slowdown}")


def _cohort_finding(sustained: FleetMeans, energy: FleetMeans) -> Finding:
    question = "Which three phones for a federated round?"
    if not sustained.ranked:
        return Finding(question, f"Three phones cannot be chosen: {sustained.problem}.")
    cohort = choose_top_three(sustained.ranked, energy.ranked)
    if cohort is None:
        phones = len(sustained.ranked)
        count = "only one phone has" if phones == 1 else f"only {phones} phones have"
        return Finding(question, f"Three phones cannot be chosen: {count} a valid ten-minute run.")
    names = ", ".join(mean.name for mean in cohort.chosen)
    finding = _finding(question, sustained, _cohort_text(cohort), names)
    return replace(finding, chosen=tuple(mean.phone for mean in cohort.chosen))


def _cohort_text(cohort: TopThree) -> str:
    first, second, third = cohort.chosen
    names = f"{first.name}, {second.name} and {third.name}"
    times = f"{_ms(first)}, {_ms(second)} and {_ms(third)}"
    text = f"take {names}: after ten minutes they need {times} per step, and a round lasts as long "
    text += f"as its slowest phone, {_ms(third)} per step"
    if cohort.runner_up is not None:
        text += f"; {cohort.runner_up.name} would be as fast, but needs more energy per step"
    elif cohort.next_fastest is not None:
        text += f"; with {cohort.next_fastest.name} it would be {_ms(cohort.next_fastest)}"
    return text


def _scope(means: FleetMeans) -> str:
    if means.cells_all == 1:
        return ""
    if means.cells_used == means.cells_all:
        return f" (geometric mean of {means.cells_used} cells)"
    if means.cells_used == 1:
        return f" (in the one of {means.cells_all} cells that every phone has)"
    cells = f"{means.cells_used} of {means.cells_all} cells"
    return f" (geometric mean of the {cells} that every phone has)"


def _ms(mean: FleetMean) -> str:
    return f"{format_ms(mean.value)} ms"


def choose_top_three(
    sustained: Sequence[FleetMean], energy: Sequence[FleetMean]
) -> TopThree | None:
    """Choose three phones for a federated round; None when there are fewer than three.

    A synchronous round ends when its slowest phone does, so the sustained time of the slowest is
    minimised. Phones within two percent count as equally fast; among those, the ones that need the
    least energy are taken. The means are sorted, the fastest first.
    """
    if len(sustained) < COHORT_SIZE:
        return None
    limit = sustained[COHORT_SIZE - 1].value * (1 + EQUAL_MARGIN)
    fast_enough = [mean for mean in sustained if mean.value <= limit]
    chosen = fast_enough[:COHORT_SIZE]
    runner_up = None
    energy_of = {mean.phone: mean for mean in energy}
    if len(fast_enough) > COHORT_SIZE and all(_same_source(m, energy_of) for m in fast_enough):
        frugal = sorted(fast_enough, key=lambda mean: (energy_of[mean.phone].value, mean.value))
        chosen = sorted(frugal[:COHORT_SIZE], key=lambda mean: mean.value)
        runner_up = frugal[COHORT_SIZE]
    others = [mean for mean in sustained if mean not in chosen]
    return TopThree(tuple(chosen), others[0] if others else None, runner_up)


def _same_source(mean: FleetMean, energy_of: dict[str, FleetMean]) -> bool:
    """Return whether the phone's energy is known and has the same source as its time."""
    energy = energy_of.get(mean.phone)
    return energy is not None and energy.provenance.source is mean.provenance.source
