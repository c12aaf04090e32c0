"""Three plain sentences after a sweep: who is fastest cold, who after ten minutes, whom to take.

A sentence never claims more than its numbers hold: simulated ones say so first, a lead that may be
chance is called a lead and not a victory, and what is missing is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.claim import RUNS_FOR_A_CLAIM, origin, told_apart
from orchestrator.analysis.pace import Pace, Paces, paces_of
from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.slowdown import slowdown_of
from orchestrator.analysis.trio import Trio, choose_trio
from orchestrator.nouns import MeasuredRun
from workloads.condition import Protocol
from workloads.measure import Model, Provenance, Source
from workloads.units import format_ms

COLD_METRIC = "step_ms"
SUSTAINED_METRIC = "last_minute_step_ms"
ENERGY_METRIC = "energy_per_sample_mj"


@dataclass(frozen=True)
class Finding:
    """An answer in one sentence; provenance is None when there is no answer."""

    question: str
    sentence: str
    provenance: Provenance | None = None
    answer: str = ""  # the same in a word or two

    @property
    def simulated(self) -> bool:
        """Whether the answer rests on numbers that no phone has produced."""
        return self.provenance is not None and self.provenance.source is Source.SIMULATED


def findings(runs: Sequence[MeasuredRun], mix: bool = False) -> tuple[Finding, Finding, Finding]:
    """Answer the three questions that a sweep is asked first."""
    cold = paces_of(runs, Protocol.COLD, COLD_METRIC, mix)
    sustained = paces_of(runs, Protocol.ENDURANCE, SUSTAINED_METRIC, mix)
    energy = paces_of(runs, Protocol.ENDURANCE, "energy_per_step_mj", mix)
    return (
        _finding("Who is fastest cold?", cold, _lead(cold, "cold"), _first(cold)),
        _finding(
            "Who is fastest after ten minutes?",
            sustained,
            _lead(sustained, "after ten minutes of heat") + _difference(cold, sustained),
            _first(sustained),
        ),
        _federated(sustained, energy),
    )


def frugal(runs: Sequence[MeasuredRun], mix: bool = False) -> Finding:
    """Say what a sample costs in energy: over ten minutes where there are such runs, else cold."""
    question = "Who needs the least energy?"
    over = "over ten minutes"
    paces = paces_of(runs, Protocol.ENDURANCE, ENERGY_METRIC, mix)
    if not paces.ranked:
        cold = paces_of(runs, Protocol.COLD, ENERGY_METRIC, mix)
        paces, over = (cold, "cold") if cold.ranked else (paces, over)
    if not paces.ranked:
        return Finding(question, f"Nobody can be named: {paces.trouble}.")
    first, *rest = paces.ranked
    text = f"{over}, {first.name} needs {format_ms(first.value)} mJ a sample"
    if rest:
        second, most = rest[0], rest[-1]
        text += f", {second.name} {format_ms(second.value)} mJ"
        if not all(told_apart(first, other) for other in rest):
            text += f", {_why_unsure(first, rest)}"
        if most is not second:
            times = f"{most.value / first.value:.1f} times as much"
            text += f"; {most.name} needs {format_ms(most.value)} mJ, {times}"
    return _finding(question, paces, text, _first(paces))


def _first(paces: Paces) -> str:
    """The first phone's name, and whether that is more than a lead."""
    if not paces.ranked:
        return ""
    first, *rest = paces.ranked
    sure = bool(rest) and all(told_apart(first, other) for other in rest)
    return first.name if sure or not rest else f"{first.name}, unproved"


def _finding(question: str, paces: Paces, text: str, answer: str) -> Finding:
    if not paces.ranked:
        return Finding(question, f"Nobody can be named: {paces.trouble}.")
    provenance = weakest(pace.provenance for pace in paces.ranked)
    prefix = origin(provenance)
    sentence = prefix[:1].upper() + prefix[1:] + (text if prefix else text[0].upper() + text[1:])
    return Finding(question, f"{sentence}{_scope(paces)}.", provenance, answer)


def _lead(paces: Paces, when: str) -> str:
    """Name the first phone, and say how sure that is."""
    if not paces.ranked:
        return ""
    first, *rest = paces.ranked
    if not rest:
        return f"{when}, {first.name} needs {_ms(first)} a step and is the only phone to be judged"
    second = rest[0]
    if all(told_apart(first, other) for other in rest):
        ahead = f"{second.value / first.value:.2f} times ahead of {second.name} with {_ms(second)}"
        return f"{when}, {first.name} is fastest with {_ms(first)} a step, {ahead}"
    lead = f"{when}, {first.name} leads with {_ms(first)} a step before {second.name} with "
    return f"{lead}{_ms(second)}, {_why_unsure(first, rest)}"


def _why_unsure(first: Pace, rest: Sequence[Pace]) -> str:
    everyone = [first, *rest]
    if any(pace.provenance.model is Model.EXTRAPOLATED for pace in everyone):
        return "which is no proof, because a model of unknown error made the numbers"
    fewest = min(pace.interval.n for pace in everyone)
    if fewest < RUNS_FOR_A_CLAIM:
        runs = "one run" if fewest == 1 else f"{fewest} runs"
        return f"which is no proof with {runs} a cell"
    close = sum(not told_apart(first, other) for other in rest)
    phones = "one phone" if close == 1 else f"{close} phones"
    return f"but {phones} cannot be told apart from it"


def _difference(cold: Paces, sustained: Paces) -> str:
    """Say what became of the phone that was first when cold."""
    if not sustained.ranked:
        return ""
    if not cold.ranked:
        return f"; how that differs from cold is open: {cold.trouble}"
    winner = cold.ranked[0]
    places = [pace.phone for pace in sustained.ranked]
    if winner.phone not in places:
        return f"; {winner.name}, first when cold, has no valid run of ten minutes"
    place = places.index(winner.phone)
    after = sustained.ranked[place]
    heat = slowdown_of(winner, after)
    slowdown = f"{heat.ratio:.2f} times its cold time" if heat else ""
    if place == 0:
        return f"; it was first when cold as well{slowdown and f' and is now at {slowdown}'}"
    fallen = f"; {winner.name}, first when cold, is now number {place + 1} with {_ms(after)}"
    return fallen + (slowdown and f", {slowdown}")


def _federated(sustained: Paces, energy: Paces) -> Finding:
    question = "Which three phones for a federated round?"
    if not sustained.ranked:
        return Finding(question, f"No three phones can be named: {sustained.trouble}.")
    trio = choose_trio(sustained.ranked, energy.ranked)
    if trio is None:
        have = len(sustained.ranked)
        count = "only one phone has" if have == 1 else f"only {have} phones have"
        return Finding(question, f"No three phones can be named: {count} a valid ten-minute run.")
    names = ", ".join(pace.name for pace in trio.chosen)
    return _finding(question, sustained, _advice(trio), names)


def _advice(trio: Trio) -> str:
    first, second, third = trio.chosen
    names = f"{first.name}, {second.name} and {third.name}"
    times = f"{_ms(first)}, {_ms(second)} and {_ms(third)}"
    text = f"take {names}: after ten minutes they need {times} a step, and a round lasts as long "
    text += f"as its slowest phone, {_ms(third)} a step"
    if trio.spared is not None:
        text += f"; {trio.spared.name} would be as quick, but needs more energy a step"
    elif trio.next is not None:
        text += f"; with {trio.next.name} it would be {_ms(trio.next)}"
    return text


def _scope(paces: Paces) -> str:
    if paces.cells_all == 1:
        return ""
    if paces.cells_used == paces.cells_all:
        return f" (geometric mean of {paces.cells_used} cells)"
    if paces.cells_used == 1:
        return f" (in the only one of {paces.cells_all} cells that every phone has)"
    what = f"{paces.cells_used} of {paces.cells_all} cells"
    return f" (geometric mean of the {what} that every phone has)"


def _ms(pace: Pace) -> str:
    return f"{format_ms(pace.value)} ms"
