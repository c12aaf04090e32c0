"""Pairs the trials of two sides: equal in everything except what the sides name.

Trials that find no partner are counted, and values of different kinds are refused unless mixing was
requested.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.measurements import (
    Exclusion,
    IncompatibleSources,
    NothingMatches,
    TrialSeries,
    refuse_mixed_sources,
)
from orchestrator.analysis.side_filter import SideFilter, label_without, pair_key, why_no_match
from workloads.catalogue import cost_of
from workloads.protocol.faults import InvalidRequest
from workloads.text import natural_sort_key, safe_text


@dataclass(frozen=True)
class TrialPair:
    """One trial of each side."""

    base: TrialSeries
    candidate: TrialSeries
    case: str
    condition: str
    phone: str

    @property
    def label(self) -> str:
        """Short name for tables."""
        return f"{self.case}, {self.condition}, {self.phone}"


@dataclass(frozen=True)
class PairedTrials:
    """The pairs of two sides, and the number of runs and trials left out by reason."""

    pairs: tuple[TrialPair, ...]
    left_out: tuple[tuple[Exclusion, int], ...]


def pair_trials(
    base: Sequence[TrialSeries],
    candidate: Sequence[TrialSeries],
    sides: tuple[SideFilter, SideFilter],
    mix: bool = False,
) -> PairedTrials:
    """Pair the trials of two sides by what they share.

    Sides that name workloads may be different engines: parameters that only one has are ignored.
    """
    side_keys = frozenset(sides[0].patterns) | frozenset(sides[1].patterns)
    if "workload" in side_keys:
        side_keys |= _unshared_keys(
            [trial for trial in base if sides[0].matches(trial)],
            [trial for trial in candidate if sides[1].matches(trial)],
        )
    base_trials = _by_key(base, sides[0], side_keys)
    candidate_trials = _by_key(candidate, sides[1], side_keys)
    left_out: Counter[Exclusion] = Counter()
    for trial in (*base_trials.values(), *candidate_trials.values()):
        left_out.update(trial.left_out)
    unpaired = len(base_trials.keys() ^ candidate_trials.keys())
    if unpaired:
        left_out[Exclusion.ONE_SIDE_ONLY] += unpaired
    pairs = []
    for key in base_trials.keys() & candidate_trials.keys():
        one, other = base_trials[key], candidate_trials[key]
        if one.values and other.values:
            pairs.append(_pair(one, other, side_keys))
        else:
            left_out[Exclusion.NO_VALID_RUN] += 1
    pairs.sort(key=lambda pair: (natural_sort_key(pair.case), pair.condition, pair.phone))
    if not mix:
        paired = [trial for pair in pairs for trial in (pair.base, pair.candidate)]
        refuse_mixed_sources(kind for trial in paired for kind in trial.kinds)
        _refuse_inference_beside_training(pairs)
    return PairedTrials(tuple(pairs), tuple(left_out.most_common()))


def _refuse_inference_beside_training(pairs: Sequence[TrialPair]) -> None:
    """Refuse pairs of a training step and a step of inference, which does a third of the work."""
    for pair in pairs:
        trains = [cost_of(side.case).training for side in (pair.base, pair.candidate)]
        if trains[0] != trains[1]:
            names = [safe_text(side.case.name, 60) for side in (pair.base, pair.candidate)]
            if trains[1]:
                names.reverse()
            raise IncompatibleSources(
                f"{names[0]} measures training steps and {names[1]} inference; "
                "compare two of a kind, or pass --allow-mixed"
            )


def _unshared_keys(base: Sequence[TrialSeries], candidate: Sequence[TrialSeries]) -> frozenset[str]:
    """Return the parameters and options that not all trials have, and the program itself."""
    keys = [{*trial.case.parameters, *trial.case.options} for trial in (*base, *candidate)]
    shared = set.intersection(*keys) if keys else set()
    return frozenset(set().union(*keys) - shared) | {"manifest"}


def _by_key(
    trials: Sequence[TrialSeries], side: SideFilter, side_keys: frozenset[str]
) -> dict[str, TrialSeries]:
    matches: dict[str, TrialSeries] = {}
    for trial in trials:
        if not side.matches(trial):
            continue
        key = pair_key(trial, side_keys)
        if key in matches:
            both = f"{_full_label(matches[key])} and {_full_label(trial)}"
            raise InvalidRequest(
                f"'{safe_text(side.text)}' is ambiguous: it matches {both}; add another KEY=VALUE"
            )
        matches[key] = trial
    if not matches:
        raise NothingMatches(why_no_match(side, trials))
    return matches


def _full_label(trial: TrialSeries) -> str:
    return safe_text(f"{trial.case.label}, {trial.condition.label} on {trial.phone}")


def _pair(one: TrialSeries, other: TrialSeries, side_keys: frozenset[str]) -> TrialPair:
    case, condition = label_without(one, side_keys)
    phones = dict.fromkeys(safe_text(f"{side.model} ({side.phone})", 80) for side in (one, other))
    return TrialPair(one, other, case, condition, " vs ".join(phones))
