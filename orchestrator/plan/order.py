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
from orchestrator.plan.policy import Baseline
from orchestrator.plan.sweep import Sweep
from workloads.noun import digest_of

Run = tuple[str, int]  # trial and repeat


def order(sweep: Sweep, trials: Sequence[Trial]) -> tuple[PlannedRun, ...]:
    """Line up every run; the position counts through all blocks of a phone.

    A run stands where the first order of its block has it, and knows its place in the others.
    """
    by_phone: dict[str, list[str]] = {}
    for trial in trials:
        by_phone.setdefault(trial.phone, []).append(trial.id)
    planned: list[PlannedRun] = []
    for phone, ids in sorted(by_phone.items()):
        start = 0
        for block in range(sweep.policy.blocks):
            orders = _orders(sweep, phone, block, sorted(ids))
            others = [dict(zip(order, range(len(order)), strict=True)) for order in orders[1:]]
            for place, run in enumerate(orders[0]):
                places = (place, *(other[run] for other in others))
                planned.append(PlannedRun(*run, block, start + place, places))
            start += len(orders[0])
    return tuple(planned)


def _orders(sweep: Sweep, phone: str, block: int, ids: Sequence[str]) -> list[list[Run]]:
    """Every order that is drawn of a block."""
    baseline = sweep.policy.baseline
    control = sweep.trial_id(baseline.cell, phone) if baseline else None
    orders = []
    for draw in range(sweep.policy.orders):
        # The first is drawn as it was before there were others: a stored order stays what it is.
        key = [sweep.seed, phone, block, *([draw] if draw else [])]
        source = random.Random(int(digest_of(key)[:16], 16))
        shuffled = _shuffled([each for each in ids if each != control], source)
        runs = [(each, block) for each in shuffled]
        if baseline is not None and control in ids:
            assert control is not None
            runs = _interleaved(runs, control, block, baseline, source)
        orders.append(runs)
    return orders


def _interleaved(
    runs: list[Run], control: str, block: int, baseline: Baseline, source: random.Random
) -> list[Run]:
    """Put the baseline into every stretch of a block, at a place of its own."""
    count = baseline.runs_in(len(runs))
    mixed: list[Run] = []
    for index in range(count):
        stretch = runs[index * baseline.every : (index + 1) * baseline.every]
        place = int(source.random() * (len(stretch) + 1))
        stretch.insert(place, (control, block * count + index))
        mixed += stretch
    return mixed


def _shuffled(ids: Sequence[str], source: random.Random) -> list[str]:
    # Python promises the same random() for ever, but not the same shuffle().
    return sorted(ids, key=lambda _: source.random())
