"""What heat does to a fleet, in three sentences that use the numbers of the table above them.

The first is about the order of the phones, the second about the phone that heat costs most, the
third about a federated round. Phones closer than two percent are too close to tell apart.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.analysis.log_ratio import RunPair, estimate_log_ratio
from orchestrator.analysis.measurements import MeasuredRun
from workloads.protocol.condition import Protocol
from workloads.protocol.metrics import Source
from workloads.text import safe_text
from workloads.units import format_ms

COLD, HOT = (Protocol.COLD, "step_ms"), (Protocol.ENDURANCE, "last_minute_step_ms")
ROUND = 3  # phones of a federated round
TIE = 0.02
ALPHA = 0.05
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True)
class PhoneFigures:
    """What one phone needs for a step: cold, after ten minutes, and how much longer that is."""

    phone: str
    model: str
    cold_ms: float | None
    hot_ms: float | None
    slowdown: tuple[float, float] | None  # hot divided by cold: both ends of the 95 % interval
    simulated: bool = False  # the interval is that of repeated runs, without the model's error

    @property
    def ratio(self) -> float:
        """How many times longer a step takes after ten minutes."""
        return (self.hot_ms or math.nan) / (self.cold_ms or math.nan)


def phone_figures(runs: Sequence[MeasuredRun]) -> list[PhoneFigures]:
    """Return the figures of every phone, from the runs of one case; the fastest cold one first."""
    found = []
    for phone in {run.phone: None for run in runs}:
        own = [run for run in runs if run.phone == phone]
        cold, hot = (_counted(own, *each) for each in (COLD, HOT))
        model, slowdown = safe_text(own[0].facts.model, 40), _interval(phone, cold, hot)
        found.append(
            PhoneFigures(phone, model, _median(cold), _median(hot), slowdown, _simulated(own))
        )
    return sorted(found, key=lambda one: (one.cold_ms or math.inf, one.phone))


def _simulated(runs: Sequence[MeasuredRun]) -> bool:
    sources = {run.metrics[name].provenance.source for run in runs for name in run.metrics}
    return Source.SIMULATED in sources


def _counted(runs: Sequence[MeasuredRun], protocol: Protocol, metric: str) -> dict[int, float]:
    """Return the values that count, by block."""
    counted = [run for run in runs if run.condition.protocol is protocol and run.counts(metric)]
    return {run.block: run.metrics[metric].value for run in counted}


def _median(values: dict[int, float]) -> float | None:
    return median(values.values()) if values else None


def _interval(
    phone: str, cold: dict[int, float], hot: dict[int, float]
) -> tuple[float, float] | None:
    if not cold or not hot:
        return None
    pair = RunPair(phone, [*cold.values()], [*hot.values()], ([*cold], [*hot]))
    estimate = estimate_log_ratio([pair])
    if estimate is None:
        return None
    half = estimate.half_width(ALPHA)
    return math.exp(estimate.log_ratio - half), math.exp(estimate.log_ratio + half)


def fleet_sentences(fleet: Sequence[PhoneFigures]) -> tuple[str, ...]:
    """Say what the figures show; what a missing figure would decide is left out."""
    complete = [one for one in fleet if one.cold_ms and one.hot_ms]
    if len(complete) < len(fleet) or len(complete) < 2:
        return ("Some phones have no result yet, so they cannot be compared.",)
    return tuple(filter(None, (_order(complete), _cost(complete), _round(complete))))


def _order(fleet: Sequence[PhoneFigures]) -> str:
    cold, hot = _sorted(fleet, _cold), _sorted(fleet, _hot)
    first, tied = cold[0], _tied(cold, _cold)
    if len(tied) > 1:
        text = f"When cold, {_names(tied)} are too close to tell apart ({_span(tied, _cold)} ms). "
    else:
        text = f"When cold, {first.model} is fastest with {format_ms(_cold(first))} ms per step. "
    after, best = _tied(hot, _hot), hot[0]
    if len(after) > 1:
        return f"{text}After ten minutes, {_names(after)} are too close to tell apart " + (
            f"({_span(after, _hot)} ms)."
        )
    still = " still" if tied == [best] else ""
    text += (
        f"After ten minutes of training, {best.model}{still} is, with {format_ms(_hot(best))} ms"
    )
    if best in tied:
        return f"{text}."
    return f"{text}, and {first.model} is {_place(first, hot)} with {format_ms(_hot(first))} ms."


def _cost(fleet: Sequence[PhoneFigures]) -> str:
    """Name the phone that heat costs most, with the error of that cost."""
    most = max(fleet, key=lambda one: one.ratio)
    if most.slowdown is None:
        return ""
    low, high = most.slowdown
    if low <= 1 + TIE:
        return "What heat costs is too close to tell on every phone."
    was, now = (_place(most, _sorted(fleet, by)) for by in (_cold, _hot))
    fall = f", and it falls from {was} place to {now}" if was != now else ""
    what = "repeated simulated runs" if most.simulated else "95 %"
    return (
        f"Heat costs {most.model} most: after ten minutes a step takes {most.ratio - 1:.0%} longer "
        f"than when cold ({what}: {100 * low - 100:.0f} to {100 * high - 100:.0f} %){fall}."
    ).replace("% longer", " % longer")


def _round(fleet: Sequence[PhoneFigures]) -> str:
    """Say which phones to choose for a federated round, and why."""
    if len(fleet) <= ROUND:
        return ""
    chosen = round_of(fleet)
    fastest = _sorted(fleet, _cold)[:ROUND]
    text = f"For a federated round of three phones, choose {_names(chosen)}"
    slowest = max(map(_hot, chosen))
    if set(chosen) == set(fastest):
        return f"{text}: they are the fastest when cold and when hot ({format_ms(slowest)} ms)."
    late = max(fastest, key=_hot)
    return (
        f"{text}, not the three that are fastest when cold: a round lasts as long as its slowest "
        f"phone, and {late.model} would need {format_ms(_hot(late))} ms per step when hot, "
        f"not {format_ms(slowest)}."
    )


def round_of(fleet: Sequence[PhoneFigures]) -> list[PhoneFigures]:
    """Return the phones of the shortest round; none if a figure is missing."""
    if len(fleet) <= ROUND or not all(one.hot_ms and one.cold_ms for one in fleet):
        return []
    return _sorted(fleet, _hot)[:ROUND]


def _cold(one: PhoneFigures) -> float:
    return one.cold_ms or math.inf


def _hot(one: PhoneFigures) -> float:
    return one.hot_ms or math.inf


Value = Callable[[PhoneFigures], float]


def _sorted(fleet: Sequence[PhoneFigures], value: Value) -> list[PhoneFigures]:
    return sorted(fleet, key=lambda one: (value(one), one.phone))


def _tied(ordered: Sequence[PhoneFigures], value: Value) -> list[PhoneFigures]:
    """Return the phones that are too close to the first to be told apart, the first included."""
    return [one for one in ordered if value(one) <= value(ordered[0]) * (1 + TIE)]


def _place(one: PhoneFigures, ordered: Sequence[PhoneFigures]) -> str:
    place = ordered.index(one)
    return ORDINALS[place] if place < len(ORDINALS) else f"number {place + 1}"


def _span(phones: Sequence[PhoneFigures], value: Value) -> str:
    low, high = (format_ms(end(map(value, phones))) for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _names(phones: Sequence[PhoneFigures]) -> str:
    *others, last = [one.model for one in phones]
    return f"{', '.join(others)} and {last}" if others else last
