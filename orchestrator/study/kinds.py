"""The ways in which a claim is put to observations. Pure; each answers for one phone, or for all.

A figure is the median over runs. Its half-width is half of the 95 % interval as a share of it, the
model's error included; of fewer than three runs, half of where they lay.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from orchestrator.analysis.claim import RUNS_FOR_A_CLAIM
from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.ranks import tau
from orchestrator.analysis.stats import geometric_mean, median, median_interval
from orchestrator.study.catalogue import Ask, number
from orchestrator.study.evidence import Circumstances, Evidence, Observation, is_at
from workloads.measure import Model, Provenance

SHOWN_MAX = 6


class Missing(Exception):
    """There is nothing to answer with; its text says why."""


@dataclass(frozen=True)
class Found:
    """An answer: a number, a range, or words; and what it rests on."""

    n: int
    provenance: Provenance
    value: float | None = None
    half_rel: float = 0.0
    span: tuple[float, float] | None = None
    words: str = ""  # all of the answer, or what else there is to say of a number
    more: str = ""  # what else there is to say of words


@dataclass(frozen=True)
class _Figure:
    value: float
    half_rel: float
    n: int
    provenance: Provenance


def value(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """A figure as it is."""
    figure = _figure(ask.metric, ask.at, evidence, phone)
    return Found(figure.n, figure.provenance, figure.value, figure.half_rel)


def ratio(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """How many times one figure is another; along an axis, from the least to the most."""
    below = ask.over_metric or ask.metric
    if not ask.along:
        return _divided(
            _figure(ask.metric, ask.at | ask.of, evidence, phone),
            _figure(below, ask.at | ask.over, evidence, phone),
        )
    found: dict[str, Found] = {}
    for name, at in _places(ask, evidence, phone):
        try:
            above = _figure(ask.metric, {**at, **ask.of}, evidence, phone)
            found[name] = _divided(above, _figure(below, {**at, **ask.over}, evidence, phone))
        except Missing:
            continue
    if not found:
        raise Missing(evidence.why_not(phone, ask.metric, ask.at | ask.of))
    ordered = sorted(found, key=lambda name: found[name].value or 0.0)
    low, high = found[ordered[0]].value or 0.0, found[ordered[-1]].value or 0.0
    ends = ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
    return Found(
        min(each.n for each in found.values()),
        weakest(each.provenance for each in found.values()),
        span=(low, high),
        words=f"{ends}, {len(found)} of them",
    )


def change(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """By how much one figure exceeds another."""
    above = _figure(ask.metric, ask.at | ask.of, evidence, phone)
    below = _figure(ask.over_metric or ask.metric, ask.at | ask.over, evidence, phone)
    n = min(above.n, below.n)
    return Found(n, weakest((above.provenance, below.provenance)), above.value - below.value)


def best(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """Which place on an axis has the least of a figure, or the most."""
    return _first(_along(ask, ask.metric, evidence, phone), ask.most)


def front(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """What no other place on an axis beats in both of two figures, the quickest first."""
    first = _along(ask, ask.metric, evidence, phone)
    second = _along(ask, ask.over_metric, evidence, phone)
    both = sorted(set(first) & set(second), key=lambda name: (first[name].value, name))
    if not both:
        raise Missing(evidence.why_not(phone, ask.over_metric, ask.at))
    kept: list[str] = []
    for name in both:
        if not kept or second[name].value < second[kept[-1]].value:
            kept.append(name)
    figures = [each[name] for each in (first, second) for name in kept]
    origin = weakest(figure.provenance for figure in figures)
    return Found(min(figure.n for figure in figures), origin, words=", ".join(kept))


def largest(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """The largest number on an axis at which a figure stays below a limit."""
    figures = {
        int(name): figure for name, figure in _along(ask, ask.metric, evidence, phone).items()
    }
    below = [size for size in figures if figures[size].value <= (ask.limit or math.inf)]
    origin = weakest(figure.provenance for figure in figures.values())
    n = min(figure.n for figure in figures.values())
    tried = f"of {', '.join(map(str, sorted(figures)))}"
    if not below:
        return Found(n, origin, words=f"none {tried}")
    return Found(n, origin, float(max(below)), words=tried)


def makeup(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """What the parts along an axis have of a whole, the largest first."""
    parts = _along(ask, ask.metric, evidence, phone)
    ordered = sorted(parts, key=lambda name: -parts[name].value)
    shown = [f"{name} {100 * parts[name].value:.0f} %" for name in ordered[:SHOWN_MAX]]
    return Found(
        min(part.n for part in parts.values()),
        weakest(part.provenance for part in parts.values()),
        words=", ".join(shown),
    )


def outcome(ask: Ask, evidence: Evidence, phone: str) -> Found:
    """What became of runs, in a word."""
    found = [each for each in evidence.outcomes if each.phone == phone and is_at(each.at, ask.at)]
    origins = [each.provenance for each in found if each.provenance is not None]
    if not found or not origins:
        raise Missing(evidence.why_not(phone, "", ask.at))
    counts: dict[str, int] = {}
    for each in found:
        counts[each.word] = counts.get(each.word, 0) + 1
    said = sorted(counts, key=lambda word: -counts[word])
    words = said[0] if len(said) == 1 else ", ".join(f"{word} ({counts[word]})" for word in said)
    return Found(len(found), weakest(origins), words=words)


def between(ask: Ask, evidence: Evidence) -> Found:
    """How many times the slowest phone's figure is the quickest's."""
    figures = _by_phone(ask.metric, ask.at, evidence)
    if len(figures) < 2:
        raise Missing("that takes two phones, and there are fewer with such a figure")
    named = [_phone_of(model, evidence, figures) for model in ask.models]
    pair = [phone for phone in named if phone is not None]
    if not pair or len(pair) < len(named):
        ordered = sorted(figures, key=lambda phone: -figures[phone].value)
        pair = [ordered[0], ordered[-1]]
    divided = _divided(figures[pair[0]], figures[pair[1]])
    names = " over ".join(evidence.phones[phone] for phone in pair)
    return Found(divided.n, divided.provenance, divided.value, divided.half_rel, words=names)


def winner(ask: Ask, evidence: Evidence) -> Found:
    """Which phone has the least of a figure, or the most."""
    figures = _by_phone(ask.metric, ask.at, evidence)
    if len(figures) < 2:
        raise Missing("that takes two phones, and there are fewer with such a figure")
    return _first({evidence.phones[each]: figure for each, figure in figures.items()}, ask.most)


def agreement(ask: Ask, evidence: Evidence) -> Found:
    """How alike rankings of the phones are (Kendall's tau): of two figures, or along an axis."""
    if ask.along:
        places = {name: at for phone in evidence.phones for name, at in
                  _places(ask, evidence, phone)}  # fmt: skip
        rankings = [_by_phone(ask.metric, at, evidence) for at in places.values()]
    else:
        below = ask.over_metric or ask.metric
        rankings = [
            _by_phone(ask.metric, ask.at | ask.of, evidence),
            _by_phone(below, ask.at | ask.over, evidence),
        ]
    taus: list[float] = []
    for one, other in combinations(rankings, 2):
        shared = sorted(set(one) & set(other))
        if len(shared) > 1:
            taus.append(tau([one[p].value for p in shared], [other[p].value for p in shared]))
    if not taus:
        raise Missing("that takes two phones with the same figures, and there are fewer")
    figures = [figure for ranking in rankings for figure in ranking.values()]
    return Found(
        min(figure.n for figure in figures),
        weakest(figure.provenance for figure in figures),
        sum(taus) / len(taus),
        words=f"{len(taus)} pair{'s' * (len(taus) > 1)} of rankings",
    )


EACH: dict[str, Callable[[Ask, Evidence, str], Found]] = {
    "value": value,
    "ratio": ratio,
    "change": change,
    "best": best,
    "front": front,
    "largest": largest,
    "makeup": makeup,
    "outcome": outcome,
}
FLEET: dict[str, Callable[[Ask, Evidence], Found]] = {
    "between": between,
    "winner": winner,
    "agreement": agreement,
}


def same_model(one: str, other: str) -> bool:
    """Whether two names may be those of one model: 'Meizu 16T' and 'MEIZU 16T 8GB'."""
    first, second = sorted(({*one.casefold().split()}, {*other.casefold().split()}), key=len)
    return bool(first) and first <= second


def _first(figures: Mapping[str, _Figure], most: bool) -> Found:
    """Who has the least, or the most, and how far ahead of the next; chance is called so."""
    ordered = sorted(figures, key=lambda name: figures[name].value, reverse=most)
    first = figures[ordered[0]]
    origin = weakest(figure.provenance for figure in figures.values())
    if len(ordered) == 1:
        return Found(first.n, origin, words=ordered[0], more="the only one")
    second = figures[ordered[1]]
    above, below = (first, second) if most else (second, first)
    ahead = _divided(above, below)
    apart = (ahead.value or 0.0) - 1 > ahead.half_rel and origin.model is not Model.EXTRAPOLATED
    unsure = "" if apart and ahead.n >= RUNS_FOR_A_CLAIM else ", which may be chance"
    more = f"{ahead.value or 0.0:.2f} times before {ordered[1]}{unsure}"
    return Found(first.n, origin, words=ordered[0], more=more)


def _phone_of(model: str, evidence: Evidence, among: Iterable[str]) -> str | None:
    return next((p for p in among if same_model(model, evidence.phones[p])), None)


def _by_phone(metric: str, at: Circumstances, evidence: Evidence) -> dict[str, _Figure]:
    found = {}
    for phone in evidence.phones:
        try:
            found[phone] = _figure(metric, at, evidence, phone)
        except Missing:
            continue
    return found


def _figure(metric: str, at: Circumstances, evidence: Evidence, phone: str) -> _Figure:
    """A phone's figure; where several cells are meant, their geometric mean."""
    found = evidence.of(phone, metric, at)
    if not found:
        raise Missing(evidence.why_not(phone, metric, at))
    medians = [median(each.values) for each in found]
    middle = medians[0] if len(medians) == 1 else _middle(medians)
    return _Figure(
        middle,
        max(_half_rel(each) for each in found),
        min(len(each.values) for each in found),
        weakest(each.provenance for each in found),
    )


def _middle(medians: Sequence[float]) -> float:
    return geometric_mean(medians) if min(medians) > 0 else sum(medians) / len(medians)


def _half_rel(seen: Observation) -> float:
    interval = median_interval(seen.values).widened(seen.provenance.error_rel or 0.0)
    middle = median(seen.values)
    return (interval.high - interval.low) / (2 * abs(middle)) if middle else 0.0


def _divided(above: _Figure, below: _Figure) -> Found:
    if below.value == 0:
        raise Missing("what it would be divided by is zero")
    return Found(
        min(above.n, below.n),
        weakest((above.provenance, below.provenance)),
        above.value / below.value,
        math.hypot(above.half_rel, below.half_rel),
    )


def _along(ask: Ask, metric: str, evidence: Evidence, phone: str) -> dict[str, _Figure]:
    figures = {
        name: _figure(metric, at, evidence, phone)
        for name, at in _places(ask, evidence, phone, metric)
    }
    if not figures:
        raise Missing(evidence.why_not(phone, metric, ask.at))
    return figures


def _places(
    ask: Ask, evidence: Evidence, phone: str, metric: str = ""
) -> list[tuple[str, dict[str, str | int]]]:
    """The places on an axis (or on two, as in 'cores freq') where a phone has a figure."""
    axes = ask.along.split()
    found: dict[str, dict[str, str | int]] = {}
    for each in evidence.of(phone, metric or ask.metric, ask.at):
        if all(axis in each.at for axis in axes):
            here = {axis: each.at[axis] for axis in axes}
            name = " ".join(
                word if isinstance(word, str) else number(word) for word in here.values()
            )
            found.setdefault(name, ask.at | here)
    return sorted(found.items())
