"""The order of runs: randomised complete blocks, several of each to choose from.

A block holds every trial of a phone once, shuffled, so that slow drift (heat, battery, the hour)
falls on all trials alike. Seed, phone, block and the number of the draw decide an order, and
nothing else does: neither the machine nor the sequence in which trials arrive. Of every block
several orders are drawn beforehand; whoever dispatches takes one of them as it is, and never sorts.

A baseline recurs within the block: once among every so many others, at a place that is drawn in
each stretch, so that drift inside a block shows in runs of one and the same cell.
"""

import random
from collections.abc import Sequence

from orchestrator.nouns import PlannedRun, Trial
from orchestrator.plan.sweep import Sweep
from workloads.noun import digest_of


def order(sweep: Sweep, trials: Sequence[Trial]) -> tuple[PlannedRun, ...]:
    """Line up every run; the position counts through all blocks of a phone.

    A run stands where the first order of its block has it, and knows its place in the others.
    """
    by_phone: dict[str, list[str]] = {}
    for trial in trials:
        by_phone.setdefault(trial.phone, []).append(trial.id)
    planned: list[PlannedRun] = []
    for phone, ids in sorted(by_phone.items()):
        ids.sort()
        for block in range(sweep.policy.blocks):
            planned += _block(sweep, phone, block, ids)
    return tuple(planned)


def _block(sweep: Sweep, phone: str, block: int, ids: Sequence[str]) -> list[PlannedRun]:
    """One block of a phone, in the first of its orders."""
    baseline = sweep.policy.baseline
    control = sweep.trial_id(baseline.cell, phone) if baseline else None
    others = [each for each in ids if each != control]
    recurs = baseline.runs_in(len(others)) if baseline and len(others) < len(ids) else 0
    runs = [(each, block) for each in others]
    runs += [(control or "", block * recurs + index) for index in range(recurs)]
    orders = [_drawn(sweep, [phone, block], draw, len(others), recurs) for draw in _draws(sweep)]
    # An order lists runs by place; turned round, it lists places by run.
    places = [sorted(range(len(runs)), key=each.__getitem__) for each in orders]
    places_of = list(zip(*places, strict=True))
    start = block * len(runs)
    return [
        PlannedRun(*runs[run], block, start + place, places_of[run])
        for place, run in enumerate(orders[0])
    ]


def _draws(sweep: Sweep) -> range:
    return range(sweep.policy.orders)


def _drawn(sweep: Sweep, which: list[str | int], draw: int, others: int, recurs: int) -> list[int]:
    """One order of a block: its runs by number, those of the baseline last in number."""
    # The first is drawn as it was before there were others: a stored order stays what it is.
    key = [sweep.seed, *which, *([draw] if draw else [])]
    source = random.Random(int(digest_of(key)[:16], 16))
    # Python promises the same random() for ever, but not the same shuffle().
    keys = [source.random() for _ in range(others)]
    shuffled = sorted(range(others), key=keys.__getitem__)
    if not recurs:
        return shuffled
    assert sweep.policy.baseline is not None
    every = sweep.policy.baseline.every
    mixed: list[int] = []
    for index in range(recurs):
        stretch = shuffled[index * every : (index + 1) * every]
        stretch.insert(int(source.random() * (len(stretch) + 1)), others + index)
        mixed += stretch
    return mixed
