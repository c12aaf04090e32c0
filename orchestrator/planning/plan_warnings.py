"""Warnings about a valid sweep: what may not work as intended, and what to write instead. Pure."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from statistics import NormalDist

from orchestrator.planning.estimate import PhoneEstimate
from orchestrator.planning.trials import Trial
from orchestrator.sweepfile.policy import StopRule
from orchestrator.sweepfile.sweep_file import Sweep
from workloads.protocol.condition import DEFAULT_REST_TEMP_C, REST
from workloads.protocol.metrics import Source
from workloads.protocol.phone_facts import FREE, PhoneFacts
from workloads.protocol.same_clocks import (
    SameClock,
    cell_on_phone,
    same_clock_texts,
    same_clocks,
)
from workloads.units import format_duration

REPEATS_MIN = 3  # for an estimate of the variance
BASELINE_CELLS_MIN = 20  # sweeps with fewer cells need no baseline
PINNED_SPREAD = 0.05  # most cells with pinned clocks vary by less from run to run


def plan_warnings(
    sweep: Sweep, phones: Sequence[PhoneFacts], estimates: Sequence[PhoneEstimate], now: datetime
) -> list[str]:
    """Return all warnings, the most serious first."""
    return [
        *_phone_warnings(phones),
        *_repeat_warnings(sweep),
        *_condition_warnings(sweep),
        *_rule_warnings(sweep),
        *_time_warnings(sweep, estimates, now),
    ]


def same_planned_clocks(
    trials: Sequence[Trial], phones: Sequence[PhoneFacts]
) -> tuple[SameClock, ...]:
    """Return the levels of a sweep that are one clock on its phones."""
    facts_of = {facts.serial: facts for facts in phones}
    cells = (
        cell_on_phone(facts_of[trial.phone], trial.case.digest, trial.condition) for trial in trials
    )
    return same_clocks(cell for cell in cells if cell is not None)


def clock_warnings(found: Sequence[SameClock]) -> list[str]:
    """Return a warning for every group of levels that are one clock."""
    return [
        f"{text}, so their results differ only by chance; leave one of them out, or write other "
        "clocks ('farm phone show --json' lists the steps)"
        for text in same_clock_texts(found)
    ]


def _phone_warnings(phones: Sequence[PhoneFacts]) -> Iterator[str]:
    levels = sorted({facts.control.value for facts in phones})
    if len(levels) > 1:
        yield f"phones have different control levels ({', '.join(levels)}); not compared by default"
    sources = {
        facts.provenance.time.source if facts.provenance and facts.provenance.time else Source.PHONE
        for facts in phones
    }
    if len(sources) > 1:
        names = ", ".join(sorted(source.value for source in sources))
        yield f"results will have different sources ({names}); not compared by default"


def _repeat_warnings(sweep: Sweep) -> Iterator[str]:
    rule = sweep.policy.stop
    if rule is None:
        if sweep.repeat < REPEATS_MIN:
            yield (
                f"repeat: {sweep.repeat} gives no estimate of variance; use at least "
                f"{REPEATS_MIN}, or {{until: 2%}} to repeat until the median is precise"
            )
        return
    spread = largest_tolerable_spread(rule)
    if spread < PINNED_SPREAD:
        yield (
            f"repeat: {rule.n_max} runs reach ±{rule.half_width_rel:.1%} only where runs vary by "
            f"less than {spread:.1%}; raise max or until"
        )


def largest_tolerable_spread(rule: StopRule) -> float:
    """Return the coefficient of variation at which n_max runs just reach the requested width."""
    z = NormalDist().inv_cdf((1 + rule.confidence) / 2)
    # The standard error of a median is sqrt(pi / 2) times that of a mean.
    return rule.half_width_rel * math.sqrt(rule.n_max) / (z * math.sqrt(math.pi / 2))


def _condition_warnings(sweep: Sweep) -> Iterator[str]:
    starts = [condition.start_temp_max_c for condition in sweep.conditions]
    numbers = [start for start in starts if start is not None and start != REST]
    cold = [start for start in numbers if start < DEFAULT_REST_TEMP_C]
    if cold:
        yield (
            f"start_temp_max_c: {min(cold):g} is below the usual temperature of an idle phone "
            f"({DEFAULT_REST_TEMP_C:g} °C); a phone may never be cool enough"
        )
    if None in starts:
        yield "start_temp_max_c: any lets runs start hot; their order then affects the results"
    if any(condition.freq == FREE for condition in sweep.conditions):
        yield "freq: free leaves the clocks to the phone; expect 2 to 16 % noise instead of 1 to 7"
    if sweep.policy.baseline is None and len(sweep.cells) >= BASELINE_CELLS_MIN:
        count = len(sweep.cells)
        yield f"order: {count} cells without a baseline; drift within a block will not be detected"


def _rule_warnings(sweep: Sweep) -> Iterator[str]:
    for count in sweep.rules:
        if count.cells == 0:
            effect = "removes" if count.rule.kind == "exclude" else "adds"
            yield f"line {count.rule.line}: {count.rule.name} {effect} nothing"


def _time_warnings(
    sweep: Sweep, estimates: Sequence[PhoneEstimate], now: datetime
) -> Iterator[str]:
    policy = sweep.policy
    longest = max((estimate.total.p50_s for estimate in estimates), default=0.0)
    wall = policy.budget.wall_s
    if wall is not None and longest > wall:
        share = wall / longest
        yield (
            f"budget: {format_duration(wall)} is enough for about {share:.0%} of the "
            f"{format_duration(longest)} that the slowest phone needs"
        )
    if policy.deadline is not None:
        left = (policy.deadline - now).total_seconds()
        if left < longest:
            late = "has passed" if left < 0 else f"leaves {format_duration(left)}"
            yield f"deadline: it {late}; the slowest phone needs {format_duration(longest)}"
