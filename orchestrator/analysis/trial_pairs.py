"""Trials of two sides, put together: same everything but what the sides name.

Nothing is left out without being counted, and figures of unlike making are refused unless the
mixture is meant.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.refusals import Mixture, NothingMatches
from orchestrator.analysis.selector import Selector, label_without, pair_key, why_none
from orchestrator.nouns import Making, TrialFigures
from workloads.fault import Refused
from workloads.text import natural, safe_text


@dataclass(frozen=True)
class TrialPair:
    """One trial of either side."""

    base: TrialFigures
    candidate: TrialFigures
    case: str
    condition: str
    phone: str

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.case}, {self.condition}, {self.phone}"


@dataclass(frozen=True)
class Paired:
    """The pairs of two sides, and what found no partner or does not count."""

    pairs: tuple[TrialPair, ...]
    left_out: tuple[tuple[str, int], ...]


def pair_up(
    base: Sequence[TrialFigures],
    candidate: Sequence[TrialFigures],
    sides: tuple[Selector, Selector],
    mix: bool = False,
) -> Paired:
    """Pair the trials of two sides by what they share."""
    free = frozenset(sides[0].wanted) | frozenset(sides[1].wanted)
    mine = _by_key(base, sides[0], free)
    theirs = _by_key(candidate, sides[1], free)
    left_out: Counter[str] = Counter()
    for trial in (*mine.values(), *theirs.values()):
        left_out.update(trial.left_out)
    alone = len(mine.keys() ^ theirs.keys())
    if alone:
        left_out["trials that only one side has"] += alone
    pairs = []
    for key in mine.keys() & theirs.keys():
        one, other = mine[key], theirs[key]
        if one.values and other.values:
            pairs.append(_pair(one, other, free))
        else:
            left_out["pairs of which a side has no valid run"] += 1
    pairs.sort(key=lambda pair: (natural(pair.case), pair.condition, pair.phone))
    if not mix:
        refuse_mixture(trial for pair in pairs for trial in (pair.base, pair.candidate))
    return Paired(tuple(pairs), tuple(left_out.most_common()))


def _by_key(
    trials: Sequence[TrialFigures], side: Selector, free: frozenset[str]
) -> dict[str, TrialFigures]:
    chosen: dict[str, TrialFigures] = {}
    for trial in trials:
        if not side.matches(trial):
            continue
        key = pair_key(trial, free)
        if key in chosen:
            two = f"{_whole(chosen[key])} and {_whole(trial)}"
            raise Refused(
                f"'{safe_text(side.text)}' leaves several trials for one place ({two}); "
                "write more of it, so that one is left"
            )
        chosen[key] = trial
    if not chosen:
        raise NothingMatches(why_none(side, trials))
    return chosen


def _whole(trial: TrialFigures) -> str:
    return safe_text(f"{trial.case.label}, {trial.condition.label} on {trial.phone}")


def _pair(one: TrialFigures, other: TrialFigures, free: frozenset[str]) -> TrialPair:
    case, condition = label_without(one, free)
    phones = dict.fromkeys(safe_text(f"{each.model} ({each.phone})", 80) for each in (one, other))
    return TrialPair(one, other, case, condition, " against ".join(phones))


def refuse_mixture(trials: Iterable[TrialFigures]) -> None:
    """Refuse figures of unlike making, by name."""
    makings: set[Making] = {making for trial in trials for making in trial.makings}
    for at, what in enumerate(("sources", "control levels", "energy grades")):
        found = sorted({making[at] for making in makings})
        if len(found) > 1:
            raise Mixture(
                f"the {what} differ ({', '.join(word or 'none' for word in found)}); compare them "
                "apart with phone=..., or say --mix if the mixture is meant"
            )
