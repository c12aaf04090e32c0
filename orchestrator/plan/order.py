"""The order of runs: randomised complete blocks.

A block holds every trial of a phone once, shuffled, so that slow drift (heat, battery, the hour)
falls on all trials alike. Seed, phone and block decide the order, and nothing else does: neither
the machine nor the sequence in which trials arrive.
"""

import random
from collections.abc import Sequence

from orchestrator.nouns import PlannedRun, Trial
from orchestrator.plan.sweep import Sweep
from workloads.noun import digest_of


def order(sweep: Sweep, trials: Sequence[Trial]) -> tuple[PlannedRun, ...]:
    """Line up every run; the position counts through all blocks of a phone."""
    by_phone: dict[str, list[str]] = {}
    for trial in trials:
        by_phone.setdefault(trial.phone, []).append(trial.id)
    return tuple(
        PlannedRun(trial, repeat=block, block=block, position=block * len(ids) + index)
        for phone, ids in sorted(by_phone.items())
        for block in range(sweep.repeat)
        for index, trial in enumerate(_shuffled(ids, sweep.seed, phone, block))
    )


def _shuffled(ids: Sequence[str], seed: int, phone: str, block: int) -> list[str]:
    source = random.Random(int(digest_of([seed, phone, block])[:16], 16))
    # Python promises the same random() for ever, but not the same shuffle().
    return sorted(sorted(ids), key=lambda _: source.random())
