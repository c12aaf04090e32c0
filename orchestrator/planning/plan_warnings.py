"""What is doubtful about a sweep, though nothing in it is wrong. Pure.

A doubt is a sentence that says what may disappoint and what to write instead.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from statistics import NormalDist

from orchestrator.plan.estimate import Basis, PhoneEstimate
from orchestrator.plan.policy import StopRule
from orchestrator.plan.stopping import look_confidence
from orchestrator.plan.sweep import Sweep
from workloads.heat import REST_C
from workloads.measure import Source
from workloads.phone import FREE, PhoneFacts
from workloads.units import format_duration

REPEATS_FOR_A_SPREAD = 3
CELLS_FOR_A_BASELINE = 20
SPREAD_OF_PINNED = 0.05  # most cells with fixed clocks vary by less, run by run


def doubts(
    sweep: Sweep, phones: Sequence[PhoneFacts], estimates: Sequence[PhoneEstimate], now: datetime
) -> list[str]:
    """Everything that is doubtful, the gravest first."""
    return [
        *_about_phones(phones),
        *_about_repeats(sweep),
        *_about_conditions(sweep),
        *_about_rules(sweep),
        *_about_time(sweep, estimates, now),
    ]


def _about_phones(phones: Sequence[PhoneFacts]) -> Iterator[str]:
    levels = sorted({facts.control.value for facts in phones})
    if len(levels) > 1:
        yield f"phones of different control ({', '.join(levels)}): comparisons keep them apart"
    sources = {
        facts.provenance.time.source if facts.provenance and facts.provenance.time else Source.PHONE
        for facts in phones
    }
    if len(sources) > 1:
        named = ", ".join(sorted(source.value for source in sources))
        yield f"figures of different kinds ({named}): comparisons keep them apart"


def _about_repeats(sweep: Sweep) -> Iterator[str]:
    rule = sweep.policy.stop
    if rule is None:
        if sweep.repeat < REPEATS_FOR_A_SPREAD:
            few = f"repeat: {sweep.repeat} tells little of the spread"
            yield f"{few}; three begin to, and {{until: 2%}} goes on until it is known"
        return
    reached = spread_that_suffices(rule)
    if reached < SPREAD_OF_PINNED:
        yield (
            f"repeat: with at most {rule.n_max} runs ±{rule.half_width_rel:.1%} is reached only "
            f"where runs vary by less than {reached:.1%}; others end unknown: raise max or until"
        )


def spread_that_suffices(rule: StopRule) -> float:
    """How much runs may vary (coefficient of variation) for the width to be reached at n_max."""
    z = NormalDist().inv_cdf((1 + look_confidence(rule.confidence, at_end=True)) / 2)
    # the median of n runs spreads by sqrt(pi / 2) of what their mean does
    return rule.half_width_rel * math.sqrt(rule.n_max) / (z * math.sqrt(math.pi / 2))


def _about_conditions(sweep: Sweep) -> Iterator[str]:
    starts = [each.start_temp_max_c for each in sweep.conditions]
    cold = [start for start in starts if start is not None and start < REST_C]
    if cold:
        yield (
            f"start_temp_max_c: {min(cold):g} is below where a phone at rest usually stands "
            f"({REST_C:g} °C): it may never be cool enough"
        )
    if None in starts:
        yield "start_temp_max_c: any lets a run begin hot: the order then decides about figures"
    if any(each.freq == FREE for each in sweep.conditions):
        yield "freq: free leaves the clocks to the phone: expect 2 to 16 % noise instead of 1 to 7"
    if sweep.policy.baseline is None and len(sweep.cells) >= CELLS_FOR_A_BASELINE:
        count = len(sweep.cells)
        yield f"order: {count} cells and no baseline: drift within a block will not be seen"


def _about_rules(sweep: Sweep) -> Iterator[str]:
    for count in sweep.rules:
        if count.cells == 0:
            does = "removes" if count.rule.kind == "exclude" else "adds"
            yield f"line {count.rule.line}: {count.rule.name} {does} nothing"


def _about_time(sweep: Sweep, estimates: Sequence[PhoneEstimate], now: datetime) -> Iterator[str]:
    policy = sweep.policy
    bases = [set(each.bases) for each in estimates]
    if any(Basis.TWIN in each and each != {Basis.TWIN} for each in bases):
        yield "a twin counts by the phone's clock, history by the host's: their sum is a rough one"
    longest = max((each.total.p50_s for each in estimates), default=0.0)
    wall = policy.budget.wall_s
    if wall is not None and longest > wall:
        share = wall / longest
        yield (
            f"budget: {format_duration(wall)} end at about {share:.0%} of the slowest phone's "
            f"{format_duration(longest)}"
        )
    if policy.deadline is not None:
        left = (policy.deadline - now).total_seconds()
        if left < longest:
            late = "has passed" if left < 0 else f"leaves {format_duration(left)}"
            yield f"deadline: it {late}; the slowest phone takes {format_duration(longest)}"
