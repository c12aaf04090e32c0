"""Orders the runs of a sweep in randomised complete blocks.

A block holds every trial of a phone once, shuffled, so that slow drift (heat, battery, time of day)
affects all trials alike. The order depends on the seed, the phone and the block only: not on the
machine, not on the sequence in which trials arrive, and never on how warm a phone is.

A baseline recurs within the block: once in every stretch of `every` other trials, at a random
position, so that drift inside a block shows in runs of the same cell.
"""

import random
from collections.abc import Sequence

from orchestrator.planning.trials import PlannedRun, Trial
from orchestrator.sweepfile.sweep_file import Sweep
from workloads.protocol.base import digest_of

Repeat = tuple[str, int]  # a trial and the number of its run


def order_runs(sweep: Sweep, trials: Sequence[Trial]) -> tuple[PlannedRun, ...]:
    """Return every run in order; positions count through all blocks of a phone."""
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
    """Return one block of a phone in its random order."""
    baseline = sweep.policy.baseline
    baseline_trial = sweep.trial_id(baseline.cell, phone) if baseline else None
    others = [trial for trial in ids if trial != baseline_trial]
    # digest_of, not hash(): the order must be the same on every computer.
    rng = random.Random(int(digest_of([sweep.seed, phone, block])[:16], 16))
    # Python promises the same random() in all versions, but not the same shuffle().
    keys = {trial: rng.random() for trial in others}
    runs = [(trial, block) for trial in sorted(others, key=keys.__getitem__)]
    if baseline and baseline_trial is not None and len(others) < len(ids):
        count = baseline.runs_per_block(len(others))
        baseline_runs = [(baseline_trial, block * count + index) for index in range(count)]
        runs = _mix_in(baseline_runs, runs, baseline.every, rng)
    start = block * len(runs)
    return [
        PlannedRun(trial, repeat, block, start + index)
        for index, (trial, repeat) in enumerate(runs)
    ]


def _mix_in(
    baseline_runs: Sequence[Repeat], others: Sequence[Repeat], every: int, rng: random.Random
) -> list[Repeat]:
    """Insert one run of the baseline into every stretch of other runs, at a random position."""
    mixed: list[Repeat] = []
    for index, run in enumerate(baseline_runs):
        stretch = list(others[index * every : (index + 1) * every])
        stretch.insert(int(rng.random() * (len(stretch) + 1)), run)
        mixed += stretch
    return mixed
